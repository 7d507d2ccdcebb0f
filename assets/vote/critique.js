// The critique: advice on terms by buttons, and problems in words.

const ACTIONS = [["strengthen", "▲", "more"], ["weaken", "▼", "less"], ["remove", "✕", "away"]];

const $ = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

export class CritiqueForm {
  constructor(send) {
    $("critique-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.addTyped();
      send(this.values());
    });
    $("add-term").addEventListener("click", () => this.addTyped());
  }

  show(card) {
    this.advice = new Map(); // term -> {action, reason: <input>}
    $("critique-form").reset();
    $("source").textContent = card.source;
    $("faults").replaceChildren(...card.faults.map((fault) => element("li", fault)));
    $("terms").replaceChildren(...card.terms.map((term) => this.row(term)));
  }

  row(term) {
    const row = element("div", undefined, "term");
    const number = (value) => (typeof value === "number" ? Number(value.toPrecision(3)) : "unknown");
    const reason = this.reason(term.name);
    const buttons = ACTIONS.map(([action, sign, word]) => {
      const button = element("button", `${sign} ${word}`);
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-label", `${term.name}: ${word}`);
      button.addEventListener("click", () => {
        const pressed = this.advice.get(term.name)?.action === action;
        if (pressed) this.advice.delete(term.name);
        else this.advice.set(term.name, { action, reason });
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button && !pressed)));
        reason.hidden = pressed;
      });
      return button;
    });
    row.append(
      element("code", term.name),
      element("span", `weight ${number(term.weight)}, mean ${number(term.mean)}`, "number"),
      ...buttons,
      reason,
    );
    return row;
  }

  reason(name) {
    const input = element("input");
    input.maxLength = 500;
    input.placeholder = "why (optional)";
    input.setAttribute("aria-label", `Why should ${name} change?`);
    input.hidden = true;
    return input;
  }

  addTyped() {
    const name = $("new-term").value.trim();
    const meaning = $("new-meaning").value.trim();
    if (!name || this.advice.has(name)) return;
    this.advice.set(name, { action: "add", reason: { value: meaning } });
    const row = element("div", undefined, "term");
    const drop = element("button", "Do not add");
    drop.type = "button";
    drop.setAttribute("aria-label", `Do not add ${name}`);
    drop.addEventListener("click", () => {
      this.advice.delete(name);
      row.remove();
    });
    row.append(element("code", `+ ${name}`), element("span", meaning, "number"), drop);
    $("terms").append(row);
    $("new-term").value = "";
    $("new-meaning").value = "";
  }

  values() {
    return {
      observation: $("observation").value,
      success: $("success").checked,
      problems: $("problems").value.split("\n").map((line) => line.trim()).filter(Boolean),
      advice: [...this.advice].map(([term, { action, reason }]) => ({ term, action, reason: reason.value })),
    };
  }
}
