// News: one stream per visible tab says that something has changed; then the changed parts of the page are replaced.
// A hidden tab has no stream, because a browser opens only six connections to one address.
const MOST_OFTEN_MS = 1000;
const SILENCE_MS = 5000;

let stream = null, due = null, busy = false, again = false, freshAt = Date.now(), brokenSince = 0;

export function startNews() {
  const where = document.getElementById("main")?.dataset.live;
  if (!where) return;
  const open = () => {
    stream ??= connect(where);
  };
  const close = () => {
    stream?.close();
    stream = null;
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    open();
    refresh();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  setInterval(showAge, 1000);
  if (!document.hidden) open();
}

function connect(where) {
  const source = new EventSource(where);
  source.addEventListener("open", () => {
    if (brokenSince) refresh();
    brokenSince = 0;
    showAge();
  });
  source.addEventListener("news", refresh);
  source.addEventListener("error", () => {
    brokenSince ||= Date.now();
    // A refused stream does not come back by itself. Loading the page says why: perhaps the session has ended.
    if (source.readyState === EventSource.CLOSED) {
      stream = null;
      refresh();
      setTimeout(() => { if (!document.hidden) stream ??= connect(where); }, 3000);
    }
  });
  return source;
}

function showAge() {
  const banner = document.getElementById("banner");
  const old = brokenSince && Date.now() - brokenSince > SILENCE_MS;
  banner.hidden = !old;
  if (old) {
    const seconds = Math.round((Date.now() - freshAt) / 1000);
    banner.textContent = `The connection is broken. This page is ${seconds < 120 ? `${seconds} seconds` : `${Math.round(seconds / 60)} minutes`} old.`;
  }
}

export function refresh() {
  if (busy) { again = true; return; }
  due ??= setTimeout(load, Math.max(0, freshAt + MOST_OFTEN_MS - Date.now()));
}

async function load() {
  due = null;
  busy = true;
  const began = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (answer.redirected && new URL(answer.url).pathname === "/sign-in") return location.reload();
    if (answer.ok) {
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      freshAt = Date.now();
    }
  } catch {
    brokenSince ||= Date.now();
  } finally {
    busy = false;
    if (again) {
      again = false;
      // A slow page is asked for less often.
      setTimeout(refresh, 4 * (Date.now() - began));
    }
  }
}

function replace(fresh) {
  // The first attempt of a job has begun: now there is a log to follow.
  if (fresh.getElementById("log") && !document.getElementById("log")) return location.reload();
  for (const part of document.querySelectorAll("[data-live-part]")) {
    const newer = fresh.getElementById(part.id);
    if (!newer || newer.innerHTML === part.dataset.seen) continue;
    // Do not pull away what somebody is using.
    if (part.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox]), select, textarea")) continue;
    const html = newer.innerHTML;
    keep(part, () => part.replaceChildren(...newer.childNodes));
    part.dataset.seen = html;
  }
  if (fresh.title) document.title = fresh.title;
  document.dispatchEvent(new Event("news"));
}

// What a person has done to a part survives its replacement: ticked boxes, the marked row, open details, focus, scroll.
function keep(part, change) {
  const ticked = [...part.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value);
  const open = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
  const closed = [...part.querySelectorAll("details:not([open])[id]")].map((each) => each.id);
  const marked = part.querySelector("[data-row].at a")?.href;
  const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  const scrolls = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  change();
  for (const box of part.querySelectorAll("input[type=checkbox]")) box.checked = ticked.includes(box.value);
  for (const id of open) part.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  for (const id of closed) part.querySelector(`#${CSS.escape(id)}`)?.removeAttribute("open");
  if (marked) [...part.querySelectorAll("[data-row]")].find((row) => row.querySelector("a")?.href === marked)?.classList.add("at");
  if (focused) [...part.querySelectorAll("a, button, input, summary, [tabindex]")].find((each) => nameOf(each) === focused)?.focus({ preventScroll: true });
  part.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = scrolls[at] ?? 0; });
}

const nameOf = (element) => element.tagName + (element.id || element.getAttribute("href") || element.value || element.getAttribute("aria-label") || element.textContent);
