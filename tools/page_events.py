"""Waiting until a page has nothing more to do: no request without an answer, and no event that Gradio works on."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, Page

from tools.waiting import until

# Gradio's page posts each event to queue/join, which answers with its number, and gets the results as server-sent
# events, lines of one long answer: "process_completed" is the last one about a number. Both go through `fetch`.
_WATCH = """
(() => {
  let begun = 0, requests = 0, completed = 0;
  const events = new Set(), early = new Set();
  const over = event => {
    completed += 1;
    if (!events.delete(event)) early.add(event);  // the result may come before the number
  };
  const read = line => {
    if (!line.startsWith("data:")) return;
    const message = JSON.parse(line.slice(5));
    if (message.event_id && message.msg === "process_completed") over(message.event_id);
    else if (message.msg === "unexpected_error" || message.msg === "close_stream") events.clear();
  };
  const watched = answer => {
    const decoder = new TextDecoder();
    let rest = "";
    const body = answer.body.pipeThrough(new TransformStream({
      transform(piece, controller) {
        const lines = (rest + decoder.decode(piece, {stream: true})).split("\\n");
        rest = lines.pop();
        lines.forEach(read);
        controller.enqueue(piece);
      },
      flush() { events.clear(); },
    }));
    return new Response(body, {status: answer.status, statusText: answer.statusText, headers: answer.headers});
  };
  const real = window.fetch;
  window.fetch = async (...what) => {
    const url = String(what[0]?.url ?? what[0]);
    if (url.includes("/heartbeat/")) return real(...what);
    if (url.includes("/queue/data")) {
      const answer = await real(...what);
      return answer.ok && answer.body ? watched(answer) : answer;
    }
    begun += 1;
    requests += 1;
    try {
      const answer = await real(...what);
      if (url.includes("/queue/join") && answer.ok) {
        const {event_id: event} = await answer.clone().json();
        if (!early.delete(event)) events.add(event);
      }
      return answer;
    } finally {
      requests -= 1;
    }
  };
  const drawn = () => new Promise(done =>
    setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done))));
  const moving = () => document.getAnimations().filter(each =>
    each.playState === "running" && each.effect?.getComputedTiming().endTime !== Infinity);
  const settled = async () => {
    await drawn();
    const before = begun;
    if (requests + events.size) return false;
    await document.fonts.ready;
    await Promise.all(moving().map(each => each.finished.catch(() => null)));
    await drawn();  // what the last result shows, and the events that follow from it
    return begun === before;
  };
  let looking = false, found = false;
  window.irwmEvents = {
    pending: () => requests + events.size,
    completed: () => completed,
    // Answers at once, so that a page that draws nothing any more holds up no test: false while a look is under way.
    settled: () => {
      const answer = found;
      found = false;
      if (!answer && !looking) {
        looking = true;
        settled().then(is => { found = is; }).finally(() => { looking = false; });
      }
      return answer;
    },
  };
})();
"""


def watch(context: BrowserContext) -> None:
    """Has each page that the context opens after this count its requests and events."""
    context.add_init_script(_WATCH)


def pending(page: Page) -> int:
    """How many requests and events of the page have no answer yet."""
    return int(page.evaluate("irwmEvents.pending()"))


def settled(page: Page) -> None:
    """Waits until nothing is pending, and fonts, transitions and what the last event brought are drawn.

    A page that polls is settled between two polls.
    """
    until(lambda: bool(page.evaluate("irwmEvents.settled()")), "the page to have nothing pending")


def after_events(page: Page, count: int) -> None:
    """Waits until so many more events are completed: those of a page that polls, for example."""
    before = page.evaluate("irwmEvents.completed()")
    page.wait_for_function("least => window.irwmEvents.completed() >= least", arg=before + count)
    settled(page)
