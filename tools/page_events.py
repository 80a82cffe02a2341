"""Waiting until a page is idle: no unanswered request, and no event in progress in Gradio."""

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
    await drawn();  // draw the last result, and run the events that follow from it
    return begun === before;
  };
  let looking = false, found = false;
  window.irwmEvents = {
    pending: () => requests + events.size,
    completed: () => completed,
    // Answers at once, so that a page that no longer draws does not block a test: false while a check is running.
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
    """Make each page that the context opens later count its requests and events."""
    context.add_init_script(_WATCH)


def pending(page: Page) -> int:
    """Return the number of unanswered requests and events of the page."""
    return int(page.evaluate("irwmEvents.pending()"))


def settled(page: Page) -> None:
    """Wait until there are no pending requests, and fonts, transitions and the last event's result are drawn.

    A page that polls is settled between two polls.
    """
    until(lambda: bool(page.evaluate("irwmEvents.settled()")), "the page to have no pending requests")


def after_events(page: Page, count: int) -> None:
    """Wait until `count` more events are completed, for example on a page that polls."""
    before = page.evaluate("irwmEvents.completed()")
    page.wait_for_function("least => window.irwmEvents.completed() >= least", arg=before + count)
    settled(page)
