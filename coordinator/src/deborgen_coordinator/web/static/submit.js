// Submitting with files: they are hashed here, those that the coordinator lacks are uploaded, then the form is sent.
import { digestOf } from "./sha256.js";

const form = document.getElementById("submit");
const text = document.getElementById("text");
const words = document.getElementById("upload-words");
const csrf = document.body.dataset.csrf;
const MOST_TEXT = 1 << 20;
let chosen = new Map();

for (const part of document.querySelectorAll("[data-needs-script]")) part.hidden = false;
for (const button of document.querySelectorAll("[data-open]")) {
  button.addEventListener("click", () => document.getElementById(button.dataset.open).click());
}

async function open(file) {
  if (!file) return;
  if (file.size > MOST_TEXT) { say(`${file.name} is too large for a job file.`); return; }
  text.value = await file.text();
  form.elements.source.value = file.name;
  say(`${file.name} is open.`);
}

const say = (sentence) => { words.textContent = sentence; };

document.getElementById("jobfile").addEventListener("change", (event) => open(event.target.files[0]));
text.addEventListener("dragover", (event) => event.preventDefault());
text.addEventListener("drop", (event) => {
  const files = [...event.dataTransfer.files];
  if (!files.length) return;
  event.preventDefault();
  const job = files.find((file) => /\.ya?ml$/i.test(file.name)) ?? files[0];
  open(job);
  choose(files.filter((file) => file !== job));
});

async function choose(files) {
  let done = 0;
  for (const file of files) {
    say(`Reading ${++done} of ${files.length} files …`);
    const path = file.webkitRelativePath || file.name;
    if (path.split("/").includes(".git")) continue;
    try {
      chosen.set(path, { file, sha256: await digestOf(file) });
    } catch {
      say(`${path} cannot be read.`);
      return;
    }
  }
  const all = [...chosen].map(([path, each]) => ({ path, sha256: each.sha256, size: each.file.size }));
  form.elements.files.value = JSON.stringify(all);
  document.getElementById("chosen-words").textContent =
    `${all.length} file${all.length === 1 ? " is" : "s are"} chosen. Only those that the job file names are uploaded.`;
  say("");
}

for (const id of ["chosen", "folder"]) {
  document.getElementById(id).addEventListener("change", (event) => choose([...event.target.files]));
}

const headers = { "Deborgen-CSRF": csrf };

async function send(verb, meant) {
  const body = new URLSearchParams(new FormData(form));
  body.set("do", verb);
  body.set("meant", meant);
  const answer = await fetch("/submit", { method: "POST", body, headers: { Accept: "text/html" } });
  return { answer, page: new DOMParser().parseFromString(await answer.text(), "text/html") };
}

function show(page) {
  const fresh = page.getElementById("outcome") ?? page.getElementById("main");
  document.getElementById("outcome").replaceChildren(...fresh.childNodes);
  for (const each of page.querySelectorAll("#submit [name=once]")) form.elements.once.value = each.value;
  document.getElementById("outcome").scrollIntoView({ block: "nearest" });
}

async function upload(missing) {
  const files = new Map([...chosen.values()].map((each) => [each.sha256, each.file]));
  let done = 0;
  for (const sha256 of missing) {
    say(`Uploading ${++done} of ${missing.length} files …`);
    const answer = await fetch(`/v1/blobs/${sha256}`, { method: "PUT", headers, body: files.get(sha256) });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const verb = event.submitter?.value ?? "check";
  for (const button of form.querySelectorAll("button")) button.disabled = true;
  say("Checking …");
  try {
    const { page } = await send("check", verb);
    const missing = page.getElementById("missing")?.value.split(" ").filter(Boolean);
    if (verb !== "submit" || !missing) { show(page); say(""); return; }
    await upload(missing);
    say("Submitting …");
    const sent = await send("submit", verb);
    if (sent.answer.redirected) { location.assign(sent.answer.url); return; }
    show(sent.page);
    say("");
  } catch (problem) {
    say(`It was not submitted: ${problem.message}. Try again.`);
  } finally {
    for (const button of form.querySelectorAll("button")) button.disabled = false;
  }
});
