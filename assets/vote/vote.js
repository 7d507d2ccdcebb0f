// The page: asks the server what to show, shows it, and sends what the person says.

import { CritiqueForm } from "./critique.js";
import { Films } from "./films.js";

const $ = (id) => document.getElementById(id);
const SECTIONS = ["enter", "compare", "results", "critique", "waiting", "ready"];
const PAUSE_MS = 350; // after a new pair, so that a second press of a key is no vote

const pair = new Films($("films"), $("transport"));
const best = new Films($("best-film"), $("best-transport"));
const critique = new CritiqueForm((values) => post("api/critique", values).then(sentCritique));

let rater = localStorage.getItem("rater") || "";
let further = false;
let question = null; // on the page
let shown = ""; // its id
let ready = false; // whether keys vote
let busy = false;
let title = document.title;

function say(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

function section(...names) {
  SECTIONS.forEach((name) => { $(name).hidden = !names.includes(name); });
}

async function ask(path, options) {
  const answer = await fetch(path, options);
  const data = await answer.json().catch(() => null);
  if (data && answer.ok) return data;
  const error = new Error(data?.error || `the server answered ${answer.status}`);
  error.known = Boolean(data?.error);
  throw error;
}

async function refresh() {
  try {
    show(await ask(`api/state?rater=${encodeURIComponent(rater)}&further=${further ? 1 : 0}`));
  } catch (error) {
    lost(error);
  }
}

function lost(error) {
  if (error.known) return say(error.message);
  ready = false;
  say("No answer: the program that serves this page has ended or was stopped. Votes given so far are recorded. "
    + "Start it again and reload this page.");
}

async function post(path, values) {
  if (busy) return null;
  busy = true;
  ready = false;
  try {
    const state = await ask(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...values, rater, further, question: shown }),
    });
    say("");
    show(state);
    return state;
  } catch (error) {
    lost(error);
    if (error.known) await refresh();
    ready = question?.kind === "compare";
    return null;
  } finally {
    busy = false;
  }
}

async function vote(winner) {
  if (!ready || question?.kind !== "compare") return;
  const said = { first: "motion 1", second: "motion 2", tie: "no difference" }[winner];
  const state = await post("api/vote", { winner, reason: $("why").value });
  if (state) $("last").textContent = `You voted: ${said}.`;
}

async function undo() {
  const state = await post("api/undo", {});
  if (state) $("last").textContent = "Your last vote is taken back.";
}

function sentCritique(state) {
  if (!state) return;
  const done = "The critique is recorded.";
  if (question?.kind === "results") say(done);
  else $("last").textContent = done;
}

function show(state) {
  const said = $("alert").textContent;
  if (said.startsWith("No answer")) say("");
  standing(state);
  for (const id of ["undo", "undo-results", "undo-critique"]) $(id).disabled = !state.undo;
  const next = state.question;
  if (!next) return waiting(state);
  $("task").textContent = next.task;
  $("details").textContent = next.details;
  $("details").hidden = !next.details;
  if (next.kind === "results") results(next);
  if (next.id === shown) return;
  question = next;
  shown = next.id;
  document.title = `${next.kind === "compare" ? "Vote" : "Critique"} - ${title}`;
  if (next.kind === "compare") compare(next);
  else if (next.kind === "criticise") criticise(next);
  else if (next.kind === "ready") section("ready");
}

function standing(state) {
  const s = state.standing;
  $("standing").hidden = !s;
  if (s) {
    const percent = Math.round(100 * s.p_best);
    $("sure").value = s.p_best;
    $("sure-text").textContent = `with ${percent} % (enough: ${Math.round(100 * s.enough)} %)`;
    const more = s.expected
      ? `about ${s.expected} more, at most ${s.at_most}`
      : s.p_best >= s.enough ? "no more needed" : "no pair left to compare";
    $("left-text").textContent = `${s.items} motions, ${s.given} comparisons so far, ${more}`;
  }
  const { same, both } = state.agreement;
  const names = state.raters.map((r) => `${r.name} ${r.votes}`).join(", ");
  const agree = both ? `; two people agree in ${same} of ${both}` : "";
  $("raters").textContent = `Votes: ${names || "none yet"}${agree}`;
  $("raters").hidden = false;
}

function waiting(state) {
  question = null;
  shown = "";
  ready = false;
  pair.pause();
  best.pause();
  document.title = title;
  const others = state.waiting_for === "others";
  $("waiting-title").textContent = others ? "Another person votes on this pair" : "Nothing to compare yet";
  $("waiting-text").textContent = others
    ? `Each pair needs the votes of ${state.needs_raters}. This page shows the next pair as soon as there is one.`
    : "The search is writing, optimising or filming motions. This page shows the next pair as soon as there is one.";
  section("waiting");
}

async function compare(next) {
  ready = false;
  $("why").value = "";
  best.pause();
  section("compare");
  $("stop").hidden = !further;
  try {
    await pair.load(next.films, next.cameras);
    setTimeout(() => { ready = shown === next.id; }, PAUSE_MS);
  } catch (error) {
    say(`The films cannot be shown: ${error.message}.`);
  }
}

async function criticise(next) {
  pair.pause();
  section("critique");
  critique.show(next);
  await best.load(next.films, next.cameras).catch((error) => say(`The film cannot be shown: ${error.message}.`));
}

function results(next) {
  const rows = next.rows.map((row, i) => {
    const made = document.createElement("tr");
    const sure = row.p_best === null ? "not compared" : `${Math.round(100 * row.p_best)} %`;
    for (const text of [i + 1, row.name, sure, row.votes]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (typeof text === "number") cell.className = "number";
      made.append(cell);
    }
    return made;
  });
  $("rows").replaceChildren(...rows);
  const { judge } = next;
  const agree = judge.both ? ` People and ${judge.name} agree in ${judge.same} of ${judge.both} pairs.` : "";
  const chose = judge.best ? ` ${judge.name} chose ${judge.best}.` : "";
  $("verdict").textContent = `People chose ${next.best.name}.${chose}${agree} Ctrl-C in the terminal ends the vote.`;
  if (shown === "results" && question?.best.name === next.best.name) return;
  question = next;
  shown = "results";
  document.title = `Ranking - ${title}`;
  pair.pause();
  section("results", "critique");
  critique.show(next.best);
  best.load(next.best.films, next.cameras).catch((error) => say(`The film cannot be shown: ${error.message}.`));
}

$("enter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  rater = $("name").value.trim();
  localStorage.setItem("rater", rater);
  begin();
});
$("pick-first").addEventListener("click", () => vote("first"));
$("pick-second").addEventListener("click", () => vote("second"));
$("pick-tie").addEventListener("click", () => vote("tie"));
for (const id of ["undo", "undo-results", "undo-critique"]) $(id).addEventListener("click", undo);
$("further").addEventListener("click", () => compareMore(true));
$("stop").addEventListener("click", () => compareMore(false));

const KEYS = {
  1: () => vote("first"),
  2: () => vote("second"),
  0: () => vote("tie"),
  u: () => undo(),
  w: () => $("why").focus(),
  "?": () => { const keys = document.querySelector("#compare details"); keys.open = !keys.open; },
};
const FILM_KEYS = {
  " ": (films) => films.toggle(),
  p: (films) => films.toggle(),
  r: (films) => films.seek(0),
  s: (films) => films.slower(),
  l: (films) => films.toggleLoop(),
  c: (films) => films.nextCamera(),
  e: (films) => films.end(),
  ArrowLeft: (films) => films.step(-1),
  ArrowRight: (films) => films.step(1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat && !event.key.startsWith("Arrow")) return;
  const target = event.target;
  if (target.matches("input:not([type=checkbox]):not([type=range]), textarea")) {
    if (event.key === "Escape" || (event.key === "Enter" && target.id === "why")) target.blur();
    return;
  }
  if (event.key === " " && target.matches("button, [type=checkbox], summary")) return; // it presses what has the focus
  const comparing = !$("compare").hidden;
  const films = comparing ? pair : !$("critique").hidden ? best : null;
  const act = (comparing || event.key === "u") && KEYS[event.key];
  if (act) act();
  else if (films?.loaded && FILM_KEYS[event.key]) FILM_KEYS[event.key](films);
  else return;
  event.preventDefault();
});
// A button that was clicked does not keep the space key.
document.addEventListener("click", (event) => {
  if (event.detail > 0 && event.target.closest("button")) document.activeElement.blur();
});

function compareMore(more) {
  further = more;
  shown = "";
  refresh();
}

function begin() {
  if (!rater) {
    section("enter");
    $("name").focus();
    return;
  }
  refresh();
}

async function poll() {
  if (rater && !busy) await refresh();
  setTimeout(poll, question ? 4000 : 1000);
}

begin();
setTimeout(poll, 1000);
