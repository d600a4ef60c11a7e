// The live log: at most 2,000 lines in the page, however long it is. Lines come as bytes, and only those that are shown
// become text. It follows the end until somebody scrolls up.
import { folded, paint } from "./ansi.js";

const MOST_LINES = 2000;
// A longer log is read from near its end, and its lines have no numbers.
const READ_WHOLE = 24 * 1024 * 1024, READ_TAIL = 4 * 1024 * 1024;
// A line without an end is cut here.
const LONGEST_LINE = 64 * 1024;
const AGAIN_MS = 2000;

const box = document.getElementById("log");
if (box) start();

function start() {
  const size = Number(box.dataset.size), from = box.dataset.from;
  const target = Number(/^#L(\d+)$/.exec(location.hash)?.[1] ?? 0);
  const more = document.getElementById("log-more"), note = document.getElementById("log-note");
  const begin = from ? Number(from) : size > READ_WHOLE ? size - READ_TAIL : 0;
  const numbered = begin === 0;
  let offset = begin, last = 0, rest = new Uint8Array(0), restAt = begin, skipFirst = begin > 0 && !from;
  let recent = [], pinned = target || from ? [] : null, unseen = 0, ended = false, drawn = 0, due = 0;
  let following = pinned === null, reader = null, running = false, left = false, style = new Set(), partial = null;

  box.replaceChildren();
  const lines = document.createElement("div");
  box.append(lines);

  function take(bytes) {
    let at = 0;
    for (;;) {
      const end = bytes.indexOf(10, at);
      if (end < 0) break;
      const piece = bytes.subarray(at, end);
      keep(rest.length ? join(rest, piece) : piece.slice(), restAt);
      rest = new Uint8Array(0);
      at = end + 1;
      restAt = offset + at;
    }
    rest = join(rest, bytes.subarray(at));
    offset += bytes.length;
    if (rest.length > LONGEST_LINE) {
      keep(rest, restAt);
      rest = new Uint8Array(0);
      restAt = offset;
    }
    due ||= requestAnimationFrame(draw);
  }

  function keep(bytes, at) {
    if (skipFirst) { skipFirst = false; return; }
    const line = { number: ++last, bytes, at };
    recent.push(line);
    if (recent.length > 2 * MOST_LINES) recent = recent.slice(-MOST_LINES);
    if (pinned && pinned.length < MOST_LINES && last > target - 200) pinned.push(line);
    if (!following) unseen++;
  }

  function draw() {
    due = 0;
    const shown = pinned ?? recent.slice(-MOST_LINES);
    const fresh = shown.filter((line) => line.number > drawn);
    // While somebody reads, nothing is taken away above.
    const room = following || pinned ? fresh : fresh.slice(0, Math.max(0, MOST_LINES - lines.children.length));
    const nodes = document.createDocumentFragment();
    for (const line of room) nodes.append(element(line));
    partial?.remove();
    lines.append(nodes);
    if (room.length) drawn = room.at(-1).number;
    if (following) while (lines.children.length > MOST_LINES) lines.firstChild.remove();
    partial = null;
    if (rest.length && following && !ended) {
      partial = element({ number: last + 1, bytes: rest, at: restAt }, new Set(style));
      lines.append(partial);
    }
    if (following) box.scrollTop = box.scrollHeight;
    more.hidden = following || !unseen;
    more.textContent = `${unseen.toLocaleString("en")} new ${unseen === 1 ? "line" : "lines"} ↓`;
    note.textContent = `${bytesInWords(offset)}${numbered ? `, ${last.toLocaleString("en")} ${last === 1 ? "line" : "lines"}` : ""}${ended ? "" : following ? ", following" : ""}`;
    if (target && !unseen && lines.children.length && !box.dataset.reached) reach();
    else if (target && last >= target && !box.dataset.reached) reach();
  }

  function reach() {
    const line = document.getElementById(`L${target}`);
    if (!line) return;
    box.dataset.reached = "1";
    line.classList.add("marked");
    box.scrollTop = line.offsetTop - box.offsetTop - 60;
  }

  function element(line, own = style) {
    const row = document.createElement("div");
    row.className = "line";
    const link = document.createElement("a");
    if (numbered) {
      row.id = `L${line.number}`;
      link.href = `#L${line.number}`;
      link.textContent = line.number;
    } else {
      link.href = `?${new URLSearchParams({ ...Object.fromEntries(new URLSearchParams(location.search)), from: line.at })}#log`;
      link.textContent = "·";
      link.setAttribute("aria-label", `from byte ${line.at}`);
    }
    const text = document.createElement("span");
    paint(text, folded(new TextDecoder().decode(line.bytes)), own);
    row.append(link, text);
    return row;
  }

  function follow() {
    following = true;
    unseen = 0;
    if (pinned || drawn < (recent.at(-MOST_LINES)?.number ?? 1) - 1) {
      pinned = null;
      drawn = 0;
      lines.replaceChildren();
    }
    draw();
  }

  function finish() {
    ended = true;
    if (rest.length) {
      keep(rest, restAt);
      rest = new Uint8Array(0);
    }
    draw();
    const end = document.createElement("p");
    end.className = "end";
    end.textContent = offset ? "the end of the log" : "the program wrote nothing";
    box.append(end);
    if (following) box.scrollTop = box.scrollHeight;
  }

  async function read() {
    if (running || ended || document.hidden) return;
    running = true;
    try {
      const answer = await fetch(`${box.dataset.log}&offset=${offset}&follow=1`, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      reader = answer.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        take(value);
      }
      // A tab that was hidden has ended the stream itself.
      if (!document.hidden && !left) finish();
      left = false;
    } catch {
      if (!ended && !document.hidden) setTimeout(read, AGAIN_MS);
    } finally {
      running = false;
      reader = null;
    }
  }

  box.addEventListener("scroll", () => {
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
    if (atEnd && !following && !pinned && drawn === last) follow();
    else if (!atEnd && following && drawn) { following = false; draw(); }
  });
  box.addEventListener("click", (event) => {
    const row = event.target.closest(".line > a")?.parentElement;
    if (!row?.id) return;
    box.querySelector(".marked")?.classList.remove("marked");
    row.classList.add("marked");
  });
  more.addEventListener("click", follow);
  document.addEventListener("visibilitychange", () => {
    // A browser opens only six connections to one address: a hidden tab gives its own back.
    if (document.hidden && reader) {
      left = true;
      reader.cancel().catch(() => {});
    } else if (!document.hidden) setTimeout(read, 100);
  });
  read();
}

function join(first, second) {
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}

function bytesInWords(amount) {
  const units = ["B", "KiB", "MiB", "GiB"];
  while (amount >= 1023.5 && units.length > 1) { amount /= 1024; units.shift(); }
  return `${units[0] === "B" || amount >= 99.5 ? Math.round(amount) : amount.toFixed(1)} ${units[0]}`;
}
