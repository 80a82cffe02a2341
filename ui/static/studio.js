// Additions to Gradio's page: copying, the address that follows the open tab, arrow keys in lists and groups, and
// folders that are dropped.
// Served as a separate file, because the page's policy runs no inline script.
(() => {
  "use strict";

  const OTHER = { "zh-CN": { Copied: "已复制", "Press Ctrl+C": "请按 Ctrl+C" } };
  const said = (text) => OTHER[document.documentElement.lang]?.[text] ?? text;

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    button.dataset.label ||= button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = said("Copied");
    } catch {
      // No permission: select the text, so that the usual keys work.
      const text = button.parentElement.querySelector("code") || document.getElementById(button.dataset.shown);
      if (text) getSelection().selectAllChildren(text);
      button.textContent = said("Press Ctrl+C");
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

  // A lock applies to the whole browser: its other tabs get a message and update at once, not at their next poll.
  const tabs = new BroadcastChannel("irwm-studio");
  tabs.addEventListener("message", (event) => {
    if (event.data === "locked") document.getElementById("follow-lock")?.click();
  });
  window.irwmLocked = () => tabs.postMessage("locked");

  // first.js answers this for the page, and sends its changes: of the system, and of the page Settings.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    document.getElementById("follow-theme")?.click(),
  );

  // A verdict that was requested here is scrolled into view and read aloud when it arrives; one shown again after
  // a reload is not. Models' cards fold meanwhile, so that only the work is shown above it.
  // The result before the controls is shown first; the verdict replaces it for a user who is still reading it.
  let awaited = false;
  let early = false;
  const shown = (element) => Boolean(element?.getClientRects().length);
  const fold = () => document.querySelectorAll("#page-investigate .model-fold").forEach((card) => (card.open = false));
  const arrive = () => {
    const first = ["#sweep-summary .notice", "#verdict .verdict"].map((id) => document.querySelector(id)).find(shown);
    if (!first) {
      const before = document.querySelector("#first-verdict .verdict");
      if (!early && shown(before)) {
        early = true;
        bring(before);
      }
      return false;
    }
    awaited = false;
    // Its card is gone with its focus; if the focus is elsewhere by now, the user moved it.
    const at = document.activeElement;
    const moved = early && at !== document.body && !at.closest("#first-verdict");
    if (!moved) bring(first);
    return true;
  };
  const bring = (first) => {
    fold();
    first.tabIndex = -1;
    first.scrollIntoView({ block: "start" });
    first.focus({ preventScroll: true });
  };
  window.irwmAwaitVerdict = () => {
    awaited = true;
    early = false;
  };
  window.irwmFoldModels = () => {
    if (!awaited) return;
    fold();
    setTimeout(() => document.getElementById("job-investigate")?.scrollIntoView({ block: "nearest" }), 100);
  };
  window.irwmToVerdict = (left = 60) => {
    if (!awaited || arrive()) return;
    if (left) setTimeout(() => window.irwmToVerdict(left - 1), 50);
  };
  // The same for other results that were requested here, by their selectors: a receipt, the outcome of a dispute.
  const results = new Set();
  window.irwmAwaitResult = (selector) => results.add(selector);
  window.irwmToResult = (selector, left = 60) => {
    const card = document.querySelector(selector);
    if (!results.has(selector)) return;
    if (shown(card)) {
      results.delete(selector);
      card.tabIndex = -1;
      card.scrollIntoView({ block: "start" });
      card.focus({ preventScroll: true });
    } else if (left) setTimeout(() => window.irwmToResult(selector, left - 1), 50);
  };
  // The focus moves to the first field of a form, once that has replaced its result or its summary.
  window.irwmToField = (form, left = 60) => {
    const fields = [...document.querySelectorAll(`${form} :is(input:not([type=radio]), textarea)`)];
    const first = fields.find((field) => field.checkVisibility({ visibilityProperty: true }));
    if (first) {
      first.focus({ preventScroll: true });
      document.querySelector(form).scrollIntoView({ block: "start" });
    } else if (left) setTimeout(() => window.irwmToField(form, left - 1), 50);
  };
  // If the user is on another page, it is shown when they return.
  document.addEventListener("click", (event) => {
    if (event.target.closest("#page-investigate-button")) setTimeout(window.irwmToVerdict, 0);
    if (event.target.closest('[role="tab"]')) for (const each of results) setTimeout(window.irwmToResult, 0, each);
  });

  // Plotly breaks no lines: a title that is wider than its figure, as on a phone, is broken here, and the figure gets
  // the height of the new lines. `whole` has the title of each figure as the server sent it.
  const whole = new WeakMap();
  const pen = document.createElement("canvas").getContext("2d");
  const broken = (text, font, width) => {
    pen.font = font;
    const wide = (line) => pen.measureText(line.replace(/<[^>]*>/g, "")).width > width;
    const lines = [];
    // Chinese text may be broken between any two characters.
    for (const word of text.split(/(?<= )|(?<=[\u4e00-\u9fff，。；：、])(?=[\u4e00-\u9fff])/)) {
      const line = lines.length ? lines.at(-1) + word : word;
      if (lines.length && wide(line)) lines.push(word);
      else lines.splice(-1, 1, line);
    }
    return lines;
  };
  // A figure that is drawn on a page behind the one in front has texts without a size, and clip paths with the other
  // page's address. It is drawn again when it comes into view.
  const unseen = new WeakSet();
  const views = new ResizeObserver((entries) => {
    for (const { target: figure, contentRect } of entries) {
      if (!contentRect.width || !unseen.delete(figure)) continue;
      if (figure._context) figure._context._baseUrl = location.href.split("#")[0];
      window.Plotly.Plots.resize(figure).then(() => window.Plotly.redraw(figure));
    }
  });
  const fit = (figure) => {
    const full = figure._fullLayout;
    if (!figure.offsetParent) unseen.add(figure);
    if (!full?.title?.text || !full.width || unseen.has(figure)) return;
    const { title, _size: place } = full;
    const space = full.width - place.l - 8;
    const axes = Object.keys(full).filter((name) => /^xaxis\d*$/.test(name) && full[name].title.text);
    const parts = [
      { now: title.text, font: title.font, space },
      { now: title.subtitle.text ?? "", font: title.subtitle.font, space },
      ...axes.map((name) => ({ now: full[name].title.text, font: full[name].title.font, space: place.w + 24 })),
    ];
    const now = parts.map((part) => part.now).join("\n");
    const before = whole.get(figure);
    const sent =
      before?.shown === now ? before : { texts: now.split("\n"), height: full.height, top: full.margin.t };
    const lines = parts.map(({ font, space }, at) =>
      broken(sent.texts[at], `${font.weight} ${font.size}px ${full.font.family}`, space),
    );
    const texts = lines.map((each) => each.join("<br>"));
    const shown = texts.join("\n");
    whole.set(figure, { ...sent, shown });
    if (shown === now) return;
    const rows = parts.map(({ font }, at) => 1.3 * font.size * (lines[at].length - 1));
    const first = rows[0] ? 10 : 0; // plotly moves a title of several lines up
    const above = first + rows[0] + rows[1];
    const { layout } = figure;
    const pad = { ...title.pad, t: 12 + first };
    layout.title = { ...layout.title, text: texts[0], subtitle: { ...layout.title.subtitle, text: texts[1] }, pad };
    axes.forEach((name, at) => (layout[name] = { ...layout[name], title: { ...layout[name].title, text: texts[at + 2] } }));
    layout.margin = { ...layout.margin, t: sent.top + above };
    layout.height = sent.height + above + Math.max(0, ...rows.slice(2));
    window.Plotly.redraw(figure);
  };
  const drawn = new WeakMap();
  const look = () => {
    for (const figure of document.querySelectorAll(".js-plotly-plot")) {
      if (drawn.get(figure) === figure._ev || !figure.on) continue;
      drawn.set(figure, figure._ev);
      figure.on("plotly_afterplot", () => fit(figure));
      views.observe(figure);
      fit(figure);
    }
  };
  let looking = false;
  new MutationObserver(() => {
    if (looking) return;
    looking = true;
    requestAnimationFrame(() => {
      looking = false;
      look();
    });
  }).observe(document, { childList: true, subtree: true });

  // Gradio 6.31 gives each radio button a separate name, and a new one at each redraw. With one name for a
  // group the browser does the rest: arrow keys choose within it, and Tab stops at the chosen one.
  let groups = 0;
  const group = () => {
    for (const box of document.querySelectorAll("fieldset:has(input[type=radio])")) {
      const name = (box.dataset.radios ||= `choice-${(groups += 1)}`);
      for (const button of box.querySelectorAll("input[type=radio]")) if (button.name !== name) button.name = name;
    }
  };
  document.addEventListener("focusin", group);
  document.addEventListener("keydown", group, { capture: true });

  // On a narrow screen Gradio shows a wizard's steps without their labels; their ids have them.
  const nameSteps = () => {
    for (const step of document.querySelectorAll('.step-button[id^="step-"]:not([aria-label])')) {
      step.setAttribute("aria-label", step.id.replace(/^step-|-button$/g, "").replaceAll("-", " "));
    }
  };
  new MutationObserver(nameSteps).observe(document.documentElement, { childList: true, subtree: true });

  // A folder dropped on a field for several files is replaced by its files; Gradio itself accepts none of them.
  const filesIn = async (entry) => {
    if (entry.isFile) return [await new Promise((done, failed) => entry.file(done, failed))];
    const reader = entry.createReader();
    const found = [];
    // A reader returns some entries at a time, and none at the end.
    for (let some = [true]; some.length; found.push(...some)) {
      some = await new Promise((done, failed) => reader.readEntries(done, failed));
    }
    return (await Promise.all(found.filter((each) => each.isFile).map(filesIn))).flat();
  };
  document.addEventListener(
    "drop",
    async (event) => {
      const field = event.target.closest?.('.block:has(input[type="file"][multiple])');
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      if (!field || !entries.some((entry) => entry.isDirectory)) return;
      event.preventDefault();
      event.stopPropagation();
      event.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true }));
      const all = new DataTransfer();
      for (const file of (await Promise.all(entries.map(filesIn))).flat()) all.items.add(file);
      const input = field.querySelector('input[type="file"]');
      input.files = all.files;
      input.dispatchEvent(new Event("change", { bubbles: true }));
    },
    { capture: true },
  );

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
