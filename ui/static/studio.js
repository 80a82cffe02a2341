// What the page needs beyond Gradio: copying, the address that follows the open tab, and arrow keys in lists.
// Served as a file of our own, since the page's policy runs no inline script.
(() => {
  "use strict";

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    button.dataset.label ||= button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      // No permission: select the text, so that the usual keys work.
      const text = button.parentElement.querySelector("code") || document.getElementById(button.dataset.shown);
      if (text) getSelection().selectAllChildren(text);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => (button.textContent = button.dataset.label), 1500);
  });

  const TAB = /^page-(.+)-button$/;
  document.addEventListener("click", (event) => {
    const name = event.isTrusted && event.target.closest('[role="tab"]')?.id.match(TAB)?.[1];
    if (!name) return;
    const address = new URL(location.href);
    if (address.searchParams.get("tab") === name) return;
    address.searchParams.set("tab", name);
    history.pushState(null, "", address);
  });
  addEventListener("popstate", () => {
    const name = new URL(location.href).searchParams.get("tab");
    const tabs = document.querySelectorAll('#pages [role="tab"]');
    const tab = name ? document.getElementById(`page-${CSS.escape(name)}-button`) : tabs[0];
    tab?.click();
  });

  document.addEventListener("keydown", (event) => {
    const list = event.target.closest?.(".entries");
    if (!list || !["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
    const lines = [...list.querySelectorAll(".entry")];
    const at = lines.indexOf(event.target);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1 }[event.key];
    lines[Math.max(0, Math.min(lines.length - 1, next))]?.focus();
    event.preventDefault();
  });
})();
