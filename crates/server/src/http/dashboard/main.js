// Asks for the counters each second while the page is seen, and draws them.

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 5000;

let startedMs = null;
let timer = null;
let failedSince = null;
let last = null;

/** The address of the counters, without a password that may stand in that of the page. */
function address() {
  const url = new URL("api/stats", document.baseURI);
  url.username = "";
  url.password = "";
  url.searchParams.set("since", String(samples.lastMs()));
  return url;
}

async function ask() {
  const response = await fetch(address(), {
    cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (response.status === 401) throw new Refusal("it asks for its password: load this page again");
  if (!response.ok) throw new Refusal("it answered: " + await response.text());
  return response.json();
}

/** An answer that is none. */
class Refusal extends Error {}

function take(answer) {
  const stats = strict(answer, "stats");
  if (startedMs !== null && startedMs !== stats.started_ms) {
    // Another process: what this page knows is of the one before.
    samples.clear();
    histograms.clear();
    startedMs = stats.started_ms;
    return false;
  }
  startedMs = stats.started_ms;
  samples.add(stats.history);
  histograms.add(stats.latency);
  last = stats;
  return true;
}

function draw() {
  if (last === null) return;
  const second = samples.lastSecond();
  drawHealth(last);
  drawAbout(last);
  drawHeadline(last, second);
  drawPipeline(last, second);
  timeline.draw();
  saved.draw(last);
  drawSavings(last);
  drawHistograms(last);
  drawSlow(last);
  drawTables(last, second);
  drawLists(last);
}

async function poll() {
  timer = null;
  let answer;
  try {
    answer = await ask();
  } catch (error) {
    fail(error);
    schedule();
    return;
  }
  failedSince = null;
  schedule();
  setLive("is-live", "live");
  if (take(answer)) draw();
  // For whoever reads the page by program: it shows this answer now.
  document.documentElement.dataset.uptime = String(answer.uptime_ms);
}

/** Says that there is no answer: what is shown is old. */
function fail(error) {
  failedSince ??= Date.now();
  const seconds = Math.round((Date.now() - failedSince) / 1000);
  setLive("is-stale", "no answer");
  const isRefusal = error instanceof Refusal;
  setHealth("error", [{
    level: "error", subject: "server",
    what: isRefusal ? "it refuses to answer" : `no answer for ${seconds} s`,
    why: isRefusal ? error.message : "It has ended, hangs, or cannot be reached from here.",
    action: "The numbers below are those of its last answer. The log of the process says more.",
  }]);
}

function setLive(kind, text) {
  document.body.className = kind;
  show("live", text);
}

function schedule() {
  if (timer === null && !document.hidden) timer = setTimeout(poll, INTERVAL_MS);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    timer = null;
    setLive("", "paused");
  } else if (timer === null) {
    // The histograms kept are older than a minute, or will be too soon.
    histograms.clear();
    poll();
  }
});
window.addEventListener("resize", draw);
saved.start();
timeline.start();
poll();
