// The page is whole without this: it only adds buttons and opens what a link points into.
for (const button of document.querySelectorAll("[data-play]")) {
  button.hidden = !document.querySelector(`#${button.dataset.play} video`);
  button.addEventListener("click", () => {
    const films = [...document.querySelectorAll(`#${button.dataset.play} video`)];
    const start = films.every((film) => film.paused);
    for (const film of films) {
      if (!start) film.pause();
      else { film.currentTime = 0; film.play(); }
    }
    button.textContent = start ? "Stop all films" : "Play all films";
  });
}
for (const film of document.querySelectorAll(".ranking video")) {
  // a late frame says more than the first, and the paused controls would hide it
  let still = true;
  const seek = () => { if (still) film.currentTime = 0.7 * film.duration; };
  film.readyState ? seek() : film.addEventListener("loadedmetadata", seek, { once: true });
  film.addEventListener("play", () => { if (still) film.currentTime = 0; still = false; });
  film.controls = false;
  film.tabIndex = 0;
  for (const event of ["pointerenter", "focus"]) film.addEventListener(event, () => { film.controls = true; });
  film.addEventListener("pointerleave", () => { film.controls = false; });
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  for (let box = target?.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  target?.scrollIntoView();
}
window.addEventListener("hashchange", reveal);
if (location.hash) reveal();
if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
  for (const film of document.querySelectorAll(".hero video")) film.play().catch(() => {});
}
