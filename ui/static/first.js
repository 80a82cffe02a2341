// Theme and language chosen on the page Settings, applied before anything is drawn. Gradio asks the system whether it is
// dark, and follows its changes; this script answers in place of the system, so that the browser stores nothing.
(() => {
  "use strict";
  const ASKED = "(prefers-color-scheme: dark)";
  const ask = window.matchMedia.bind(window);
  const system = ask(ASKED);
  let chosen = document.currentScript.dataset.theme || "system";
  // Gradio has texts of its own, in the browser's language.
  const language = document.currentScript.dataset.language || "en";
  document.documentElement.lang = language;
  Object.defineProperties(navigator, {
    language: { get: () => language },
    languages: { get: () => [language] },
  });

  const dark = () => (chosen === "system" ? system.matches : chosen === "dark");
  const answer = new EventTarget();
  Object.defineProperties(answer, {
    media: { value: ASKED },
    matches: { get: dark },
    addListener: { value: (listener) => answer.addEventListener("change", listener) },
    removeListener: { value: (listener) => answer.removeEventListener("change", listener) },
  });
  window.matchMedia = (query) => (query === ASKED ? answer : ask(query));

  const settle = () => {
    // The template's own colours, for the moment until Gradio has drawn the page.
    const style = document.documentElement.style;
    for (const [name, other] of [["--bg", "--bg-dark"], ["--col", "--col-dark"]]) {
      style.removeProperty(name);
      style.removeProperty(other);
      if (chosen === "dark") style.setProperty(name, `var(${other})`);
      if (chosen === "light") style.setProperty(other, `var(${name})`);
    }
    answer.dispatchEvent(new Event("change"));
  };
  system.addEventListener("change", settle);
  settle();

  // For the page Settings.
  window.irwmTheme = (theme) => {
    chosen = theme;
    settle();
  };
})();
