// Films that play in step, by one clock: play, pause, scrub, slow motion, loop, camera.

const RATES = [1, 0.5, 0.25];
const STEP_S = 1 / 25;
const HOLD_S = 0.8; // how long the last picture stays before the films begin again
const DRIFT_S = 0.06; // a film that is further from the clock is set to it

export class Films {
  constructor(box, transport) {
    this.videos = [...box.querySelectorAll("video")];
    this.shapes = [];
    this.time = 0;
    this.playing = false;
    this.loop = true;
    this.rate = RATES[0];
    this.camera = "both";
    this.loaded = false;
    this.urls = [];
    this.controls(transport);
    this.tick = this.tick.bind(this);
    requestAnimationFrame(this.tick);
  }

  controls(transport) {
    const button = (text, title, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.title = title;
      made.addEventListener("click", act);
      transport.append(made);
      return made;
    };
    this.playButton = button("Play", "space", () => this.toggle());
    this.slider = document.createElement("input");
    this.slider.type = "range";
    this.slider.min = 0;
    this.slider.step = 0.01;
    this.slider.setAttribute("aria-label", "Time in the films");
    this.slider.addEventListener("input", () => {
      this.pause();
      this.seek(Number(this.slider.value));
    });
    this.clock = document.createElement("output");
    transport.append(this.slider, this.clock);
    this.rateButton = button("Speed 1", "s", () => this.slower());
    this.loopButton = button("Loop", "l", () => this.toggleLoop());
    this.loopButton.setAttribute("aria-pressed", "true");
    this.cameraButton = button("View: all", "c", () => this.nextCamera());
  }

  // films: [{id, views, strip}] as the server describes them; cameras: what each view shows
  async load(films, cameras) {
    this.names = cameras ?? [];
    this.loaded = false;
    this.pause();
    const urls = await Promise.all(films.map(async (film) => {
      const answer = await fetch(`film/${encodeURIComponent(film.id)}`);
      if (!answer.ok) throw new Error(await answer.text());
      return URL.createObjectURL(await answer.blob());
    }));
    this.urls.forEach((url) => URL.revokeObjectURL(url));
    this.urls = urls;
    await Promise.all(this.videos.map((video, i) => new Promise((resolve, reject) => {
      video.onloadeddata = resolve;
      video.onerror = () => reject(new Error("this browser cannot play the film"));
      video.src = urls[i];
    })));
    this.shapes = films.map((film, i) => {
      const { videoWidth: width, videoHeight: height } = this.videos[i];
      const inner = height * (1 - 2 * film.strip);
      return { width, inner, strip: film.strip, views: film.views || (width < 1.75 * inner ? 1 : Math.round(width / inner)) }; // views are about square
    });
    this.duration = Math.max(...this.videos.map((video) => video.duration));
    this.slider.max = this.duration;
    const views = Math.max(...this.shapes.map((shape) => shape.views));
    this.cameraButton.hidden = views < 2;
    this.frame();
    this.loaded = true;
    this.seek(0);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
  }

  cameras() {
    const views = Math.min(...this.shapes.map((shape) => shape.views));
    return ["both", ...Array(views > 1 ? views : 0).keys()];
  }

  nextCamera() {
    const choices = this.cameras();
    this.camera = choices[(choices.indexOf(this.camera) + 1) % choices.length];
    this.frame();
  }

  // what a view shows
  name(view) {
    const known = this.names[view];
    return known ? known[0].toUpperCase() + known.slice(1) : `Camera ${view + 1}`;
  }

  // Shows one camera or all of a film, without the strips of text above and below, and what each shows.
  frame() {
    this.videos.forEach((video, i) => {
      const { width, inner, strip, views } = this.shapes[i];
      const one = this.camera !== "both" && views > 1;
      const across = one ? views : 1;
      const ratio = width / across / inner;
      const box = video.parentElement;
      box.style.aspectRatio = ratio;
      box.style.maxWidth = `calc(var(--film-height) * ${ratio})`;
      video.style.width = `${100 * across}%`;
      video.style.left = one ? `${-100 * this.camera}%` : "0";
      video.style.height = `${100 / (1 - 2 * strip)}%`;
      video.style.top = `${(-100 * strip) / (1 - 2 * strip)}%`;
      const seen = this.camera === "both" ? [...Array(views).keys()] : [this.camera];
      const caption = box.parentElement.querySelector("figcaption");
      caption.style.maxWidth = box.style.maxWidth;
      caption.hidden = views < 2 && !this.names[0];
      caption.replaceChildren(...seen.map((view) => {
        const text = document.createElement("span");
        text.textContent = this.name(view);
        return text;
      }));
    });
    this.cameraButton.textContent = this.camera === "both" ? "View: all" : `View: ${this.camera + 1}`;
  }

  play() {
    if (this.time >= this.duration) this.seek(0);
    this.playing = true;
    this.before = null;
    this.playButton.textContent = "Pause";
  }

  pause() {
    this.playing = false;
    this.videos.forEach((video) => video.pause());
    this.playButton.textContent = "Play";
  }

  toggle() {
    if (this.playing) this.pause();
    else if (this.loaded) this.play();
  }

  slower() {
    this.rate = RATES[(RATES.indexOf(this.rate) + 1) % RATES.length];
    this.rateButton.textContent = `Speed ${{ 1: "1", 0.5: "1/2", 0.25: "1/4" }[this.rate]}`;
  }

  toggleLoop() {
    this.loop = !this.loop;
    this.loopButton.setAttribute("aria-pressed", String(this.loop));
  }

  step(pictures) {
    this.pause();
    this.seek(this.time + pictures * STEP_S);
  }

  // the last picture, which says most of a task with a goal
  end() {
    this.pause();
    this.seek(this.duration);
  }

  seek(time) {
    if (!this.loaded) return;
    this.time = Math.min(Math.max(time, 0), this.duration);
    this.videos.forEach((video) => { video.currentTime = Math.min(this.time, video.duration); });
    this.show();
  }

  show() {
    this.slider.value = this.time;
    this.clock.textContent = `${Math.min(this.time, this.duration).toFixed(2)} of ${this.duration.toFixed(2)} s`;
    this.slider.setAttribute("aria-valuetext", this.clock.textContent);
  }

  tick(now) {
    requestAnimationFrame(this.tick);
    if (!this.playing || !this.loaded) return;
    if (this.before !== null) this.time += (this.rate * (now - this.before)) / 1000;
    this.before = now;
    if (this.time >= this.duration) {
      if (!this.loop) return this.end();
      if (this.time < this.duration + HOLD_S * this.rate) {
        this.videos.forEach((video) => video.pause());
        this.show();
        return;
      }
      this.seek(0);
    }
    for (const video of this.videos) {
      if (this.time >= video.duration) {
        if (!video.paused) video.pause(); // a film that ends earlier holds its last picture
        continue;
      }
      if (Math.abs(video.currentTime - this.time) > DRIFT_S && !video.seeking) video.currentTime = this.time;
      video.playbackRate = this.rate;
      if (video.paused) video.play().catch(() => {});
    }
    this.show();
  }
}
