// Text with the colours of a terminal. Nothing else in it has an effect, and everything is inserted as text.
const ESCAPE = /\x1b(?:\[([0-9;:?<=>]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])/g;
// Characters that change how others are shown, and control characters.
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const name = (character) => {
  const code = character.charCodeAt(0);
  return code < 32 ? String.fromCharCode(0x2400 + code) : `\\u${code.toString(16).padStart(4, "0")}`;
};

// A progress bar draws one line again and again: the last frame counts.
export function folded(text) {
  if (!text.includes("\r")) return text;
  const frames = text.split("\r").filter((frame) => frame.replace(ESCAPE, ""));
  return frames.at(-1) ?? "";
}

// Fill an element with a line. `style` is the set of classes that the line before has left switched on.
export function paint(element, line, style) {
  let at = 0;
  const add = (text) => {
    if (!text) return;
    const shown = text.replace(UNSEEN, name);
    if (!style.size) return element.append(shown);
    const part = document.createElement("span");
    part.className = [...style].join(" ");
    part.textContent = shown;
    element.append(part);
  };
  for (const found of line.matchAll(ESCAPE)) {
    add(line.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[2] === "m") change(style, found[1]);
  }
  add(line.slice(at));
}

function change(style, codes) {
  const colour = (code) => {
    for (const each of [...style]) if (/^a[39]\d$/.test(each)) style.delete(each);
    if (code) style.add(`a${code}`);
  };
  const numbers = codes.split(/[;:]/).map(Number);
  for (let at = 0; at < numbers.length; at++) {
    const code = numbers[at];
    if (code === 0) style.clear();
    else if (code >= 1 && code <= 4) style.add(`a${code}`);
    else if (code === 22) { style.delete("a1"); style.delete("a2"); }
    else if (code === 23 || code === 24) style.delete(`a${code - 20}`);
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) colour(code);
    else if (code === 39) colour(0);
    else if (code === 38 || code === 48) {
      const many = numbers[at + 1] === 5 ? 2 : numbers[at + 1] === 2 ? 4 : 0;
      const number = numbers[at + 2];
      if (code === 38 && many === 2 && number < 16) colour(number < 8 ? 30 + number : 82 + number);
      at += many;
    }
  }
}
