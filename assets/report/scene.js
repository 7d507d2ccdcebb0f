"use strict";
// The 3-D view: the model and recorded episodes of `movlr_jax/report/scene.py`, drawn with three.js.
(() => {
  const box = document.querySelector("[data-viewer]");
  if (!box) return;
  const find = (selector) => box.querySelector(selector);
  const canvas = find("canvas"), stage = find(".stage"), tip = find(".tip");

  async function unpacked() {
    const text = document.getElementById("scene-data").textContent;
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const buffer = await new Response(stream).arrayBuffer();
    const length = new DataView(buffer).getUint32(0, true), start = 4 + length;
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const KINDS = { uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };
    const array = (name) => {
      const { at, type, shape } = head.arrays[name];
      return new KINDS[type](buffer, start + at, shape.reduce((a, b) => a * b, 1));
    };
    // [channels, frames] of differences -> Float32Array [frames, channels]
    const channels = (name) => {
      const [count, frames] = head.arrays[name].shape, given = array(name);
      const low = array(`${name}_low`), step = array(`${name}_step`);
      const out = new Float32Array(count * frames);
      for (let c = 0; c < count; c++) {
        let level = 0;
        for (let f = 0; f < frames; f++) {
          level = (level + given[c * frames + f]) & 0xffff;
          out[f * count + c] = low[c] + step[c] * level;
        }
      }
      return out;
    };
    return { head, array, channels };
  }

  const SIDES = 5, RING = Array.from({ length: SIDES }, (_, i) => [Math.cos((2 * Math.PI * i) / SIDES), Math.sin((2 * Math.PI * i) / SIDES)]);
  const MOST_BODIES = 100; // of one geometry: two vectors each, and a shader has 256

  class View {
    constructor({ head, array, channels }) {
      this.head = head;
      this.episodes = head.episodes.map((e, i) => ({
        ...e, pos: channels(`pos${i}`), quat: channels(`quat${i}`), paths: channels(`paths${i}`),
        joints: channels(`joints${i}`), act: channels(`act${i}`), where: channels(`where${i}`), force: channels(`force${i}`),
      }));
      const slow = View.software();
      this.renderer = new THREE.WebGLRenderer({ canvas, antialias: !slow, powerPreference: "high-performance" });
      this.renderer.outputColorSpace = "srgb-linear"; // colours are given as they are shown
      this.ratio = this.finest = slow ? 0.9 : Math.min(devicePixelRatio, 1.5);
      this.scene = new THREE.Scene();
      const { fovy, distance } = head.camera;
      // what is a metre for a person: lengths that no model gives are in this unit
      this.unit = Math.max(Math.min(1, 3 * distance), distance / 10);
      this.camera = new THREE.PerspectiveCamera(fovy, 1, 0.01 * this.unit, Math.max(200, 50 * distance));
      this.camera.up.set(0, 0, 1);
      this.controls = new THREE.OrbitControls(this.camera, canvas);
      this.controls.addEventListener("change", () => this.dirty());
      this.parts(array);
      this.body = this.bodies(false);
      this.ghost = this.bodies(true);
      this.floor();
      this.muscles();
      this.arrows();
      this.reset();
    }

    // whether graphics are computed without a graphics card
    static software() {
      const context = document.createElement("canvas").getContext("webgl2");
      if (!context) throw new Error("it has no WebGL 2.");
      const about = context.getExtension("WEBGL_debug_renderer_info");
      const name = about ? context.getParameter(about.UNMASKED_RENDERER_WEBGL) : "";
      context.getExtension("WEBGL_lose_context")?.loseContext();
      return /swiftshader|llvmpipe|software|basic render/i.test(name);
    }

    // a colour of CSS, for materials
    static shown(css) {
      return new THREE.Color(css).convertLinearToSRGB();
    }

    // geometry and colour of everything that is fixed to a body
    parts(array) {
      const parts = [];
      for (const { body, rgba, vertices, faces } of this.head.meshes) {
        const levels = array(vertices), { low, step } = this.head.arrays[vertices];
        const points = new Float32Array(levels.length);
        for (let i = 0; i < points.length; i++) points[i] = low[i % 3] + step[i % 3] * levels[i];
        const geometry = new THREE.BufferGeometry();
        geometry.setAttribute("position", new THREE.BufferAttribute(points, 3));
        geometry.setIndex(new THREE.BufferAttribute(array(faces), 1));
        geometry.computeVertexNormals();
        parts.push({ body, rgba, geometry });
      }
      for (const { body, kind, size: [a, b, c], pos, quat, rgba } of this.head.shapes) {
        const upright = (g) => g.rotateX(Math.PI / 2); // along z as in MuJoCo
        const geometry = {
          sphere: () => new THREE.SphereGeometry(a, 20, 14),
          ellipsoid: () => new THREE.SphereGeometry(1, 20, 14).scale(a, b, c),
          capsule: () => upright(new THREE.CapsuleGeometry(a, 2 * b, 6, 14)),
          cylinder: () => upright(new THREE.CylinderGeometry(a, a, 2 * b, 20)),
          box: () => new THREE.BoxGeometry(2 * a, 2 * b, 2 * c),
        }[kind]();
        geometry.applyQuaternion(new THREE.Quaternion(quat[1], quat[2], quat[3], quat[0])).translate(...pos);
        parts.push({ body, rgba, geometry });
      }
      this.solid = parts;
    }

    // Light from the sky and from behind the camera, at the vertices: at the pixels it takes longer without a graphics
    // card. places: position and rotation of bodies, which the vertices name; without it they stand still.
    static lit(places, options) {
      const material = new THREE.MeshBasicMaterial({ vertexColors: true, ...options });
      material.customProgramCacheKey = () => `lit ${places?.length}`;
      material.onBeforeCompile = (shader) => {
        if (places) shader.uniforms.places = { value: places };
        shader.vertexShader = shader.vertexShader
          .replace("void main() {", places ? `
            attribute float body;
            uniform vec4 places[${places.length / 4}];
            vec3 turned(vec4 q, vec3 v) { return v + 2.0 * cross(q.xyz, cross(q.xyz, v) + q.w * v); }
            void main() {
              vec4 rotation = places[2 * int(body) + 1];
              vec3 facing = turned(rotation, normal);` : `
            void main() {
              vec3 facing = normal;`)
          .replace("#include <begin_vertex>", places
            ? "vec3 transformed = places[2 * int(body)].xyz + turned(rotation, position);" : "#include <begin_vertex>")
          .replace("#include <project_vertex>", `#include <project_vertex>
            float sun = max(0.0, dot(mat3(viewMatrix) * facing, vec3(-0.3, 0.6, 0.74)));
            vColor.rgb *= sqrt(0.51 * sun + 0.48 * mix(vec3(0.25, 0.32, 0.4), vec3(1.0), 0.5 + 0.5 * facing.z));`);
      };
      return material;
    }

    // What is fixed to bodies, as few geometries: each is drawn by one call.
    bodies(faint) {
      const moving = this.moving(), all = new THREE.Group(), sets = [];
      const drawn = this.solid.filter(({ body }) => !faint || moving[body]).sort((a, b) => a.body - b.body);
      for (const clear of [false, true]) {
        const parts = drawn.filter(({ rgba }) => (faint || rgba[3] < 1) === clear);
        for (let from = 0, to = 0; from < parts.length; from = to) {
          const bodies = new Set();
          while (to < parts.length && (bodies.size < MOST_BODIES || bodies.has(parts[to].body))) bodies.add(parts[to++].body);
          sets.push({ bodies: [...bodies], places: new Float32Array(8 * bodies.size) });
          const { bodies: names, places } = sets.at(-1);
          const material = View.lit(places, { transparent: clear, depthWrite: !clear });
          const mesh = new THREE.Mesh(View.merged(parts.slice(from, to), names, faint), material);
          mesh.frustumCulled = false;
          all.add(mesh);
        }
      }
      all.visible = !faint;
      this.scene.add(all);
      return { all, sets };
    }

    static merged(parts, bodies, faint) {
      const sum = (of) => parts.reduce((total, part) => total + of(part.geometry), 0);
      const vertices = sum((g) => g.attributes.position.count), corners = sum((g) => g.index.count);
      const position = new Float32Array(3 * vertices), normal = new Float32Array(3 * vertices);
      const colour = new Uint8Array(4 * vertices), owner = new Float32Array(vertices), index = new Uint32Array(corners);
      let v = 0, i = 0;
      for (const { body, rgba, geometry } of parts) {
        const { position: given, normal: facing } = geometry.attributes, n = given.count;
        const bytes = (faint ? [0.35, 0.5, 0.9, 0.28] : rgba).map((value) => Math.round(255 * value));
        position.set(given.array, 3 * v);
        normal.set(facing.array, 3 * v);
        owner.fill(bodies.indexOf(body), v, v + n);
        for (let k = v; k < v + n; k++) colour.set(bytes, 4 * k);
        for (let k = 0; k < geometry.index.count; k++) index[i + k] = v + geometry.index.array[k];
        v += n;
        i += geometry.index.count;
      }
      const made = new THREE.BufferGeometry();
      made.setAttribute("position", new THREE.BufferAttribute(position, 3));
      made.setAttribute("normal", new THREE.BufferAttribute(normal, 3));
      made.setAttribute("color", new THREE.BufferAttribute(colour, 4, true));
      made.setAttribute("body", new THREE.BufferAttribute(owner, 1));
      made.setIndex(new THREE.BufferAttribute(index, 1));
      return made;
    }

    // What a pointer can be on: not drawn, and placed when it is asked for.
    targets() {
      const groups = this.head.bodies.map(() => new THREE.Group()), all = new THREE.Group();
      for (const { body, geometry } of this.solid) {
        const mesh = new THREE.Mesh(geometry);
        mesh.userData.body = body;
        groups[body].add(mesh);
      }
      all.add(...groups);
      return { all, groups };
    }

    moving() {
      return this.head.bodies.map((_, b) => this.episodes.some(({ pos, quat, times }) => {
        const n = this.head.bodies.length;
        for (let f = 1; f < times.length; f++) {
          for (let i = 0; i < 3; i++) if (Math.abs(pos[(f * n + b) * 3 + i] - pos[b * 3 + i]) > 2e-3 * this.unit) return true;
          for (let i = 0; i < 4; i++) if (Math.abs(quat[(f * n + b) * 4 + i] - quat[b * 4 + i]) > 5e-3) return true;
        }
        return false;
      }));
    }

    // lines every metre, or every power of ten of it that suits the model and its way
    floor() {
      const height = this.head.ground;
      if (height === null) return;
      let [x0, y0, x1, y1] = [-2, -2, 2, 2].map((v) => v * this.unit);
      const n = this.head.bodies.length, room = 1.5 * this.unit;
      for (const { pos, times } of this.episodes) {
        for (let f = 0; f < times.length; f++) for (let b = 1; b < n; b++) {
          const x = pos[(f * n + b) * 3], y = pos[(f * n + b) * 3 + 1];
          x0 = Math.min(x0, x - room); x1 = Math.max(x1, x + room); y0 = Math.min(y0, y - room); y1 = Math.max(y1, y + room);
        }
      }
      let cell = 10 ** Math.round(Math.log10(this.unit));
      while (x1 - x0 + y1 - y0 > 1000 * cell) cell *= 10;
      const [i0, j0, i1, j1] = [Math.floor(x0 / cell), Math.floor(y0 / cell), Math.ceil(x1 / cell), Math.ceil(y1 / cell)];
      const points = [];
      for (let i = i0; i <= i1; i++) points.push(i * cell, j0 * cell, height, i * cell, j1 * cell, height);
      for (let j = j0; j <= j1; j++) points.push(i0 * cell, j * cell, height, i1 * cell, j * cell, height);
      const geometry = new THREE.BufferGeometry();
      geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(points), 3));
      this.lines = new THREE.LineSegments(geometry, new THREE.LineBasicMaterial());
      this.scene.add(this.lines);
    }

    muscles() {
      this.segments = [];
      let slot = 0;
      this.head.tendons.forEach((tendon, t) => {
        tendon.starts.forEach((start, i) => { if (!start) this.segments.push([slot + i - 1, slot + i, t]); });
        slot += tendon.starts.length;
      });
      // a tube for each segment: a ring of points at each end; instances would take longer without a graphics card
      const n = this.segments.length, count = 2 * SIDES * n, index = new Uint32Array(6 * SIDES * n);
      for (let s = 0, k = 0; s < n; s++) {
        for (let i = 0; i < SIDES; i++) {
          const [a, b] = [i, (i + 1) % SIDES].map((side) => 2 * (s * SIDES + side));
          for (const vertex of [a, a + 1, b, b, a + 1, b + 1]) index[k++] = vertex;
        }
      }
      const geometry = new THREE.BufferGeometry();
      for (const [name, array, size] of [["position", new Float32Array(3 * count), 3], ["normal", new Float32Array(3 * count), 3], ["color", new Uint8Array(4 * count).fill(255), 4]]) {
        geometry.setAttribute(name, new THREE.BufferAttribute(array, size, name === "color").setUsage(THREE.DynamicDrawUsage));
      }
      geometry.setIndex(new THREE.BufferAttribute(index, 1));
      this.ropes = new THREE.Mesh(geometry, View.lit());
      this.ropes.frustumCulled = false;
      this.scene.add(this.ropes);
      this.palette = Array.from({ length: 256 }, (_, i) => report.activation(i / 255).map(Math.round));
    }

    arrows() {
      const most = Math.max(1, ...this.episodes.map((e) => e.contacts.length));
      const material = new THREE.MeshBasicMaterial({ color: View.shown("#12a150") });
      const shaft = new THREE.CylinderGeometry(1, 1, 1, 8, 1).translate(0, 0.5, 0), cone = new THREE.ConeGeometry(1, 1, 12).translate(0, 0.5, 0);
      this.shafts = new THREE.InstancedMesh(shaft, material, most);
      this.cones = new THREE.InstancedMesh(cone, material, most);
      for (const mesh of [this.shafts, this.cones]) { mesh.frustumCulled = false; this.scene.add(mesh); }
      this.strongest = 0;
      for (const { force } of this.episodes) {
        for (let i = 0; i < force.length; i += 3) this.strongest = Math.max(this.strongest, Math.hypot(force[i], force[i + 1], force[i + 2]));
      }
      if (this.strongest > 0.5) {
        find(".force-key").hidden = false;
        find(".force-key").textContent = `→ contact force, the longest arrow ${this.strongest.toPrecision(2) * 1} N`;
      } else find(".has-forces").hidden = true;
      find(".muscle-key").hidden = find(".has-muscles").hidden = !this.head.tendons.length;
      find(".weakened-key").hidden = !this.head.tendons.some((tendon) => tendon.weakened);
      find(".has-track").hidden = this.head.camera.track === null;
    }

    reset() {
      const { lookat, distance, azimuth, elevation } = this.head.camera, rad = Math.PI / 180;
      const along = [Math.cos(elevation * rad) * Math.cos(azimuth * rad), Math.cos(elevation * rad) * Math.sin(azimuth * rad), Math.sin(elevation * rad)];
      this.followed = [0, 0];
      this.controls.target.set(...lookat);
      this.camera.position.set(...lookat.map((v, i) => v - distance * along[i]));
      this.controls.update();
      this.time = -1;
      this.at(report.time ?? 0);
    }

    turn(across, up) {
      const offset = this.camera.position.clone().sub(this.controls.target), z = new THREE.Vector3(0, 0, 1);
      offset.applyAxisAngle(z, across);
      const side = new THREE.Vector3().crossVectors(z, offset).normalize();
      const turned = offset.clone().applyAxisAngle(side, up);
      if (Math.abs(turned.z) < 0.995 * turned.length()) offset.copy(turned);
      this.camera.position.copy(this.controls.target).add(offset);
      this.controls.update();
      this.dirty();
    }

    closer(factor) {
      this.camera.position.sub(this.controls.target).multiplyScalar(factor).add(this.controls.target);
      this.controls.update();
      this.dirty();
    }

    // [frame, next frame, fraction] of an episode at a time
    frame({ times }, time) {
      let low = 0, high = times.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (times[middle] <= time) low = middle; else high = middle;
      }
      const span = times[high] - times[low];
      return [low, high, span > 0 ? Math.min(1, Math.max(0, (time - times[low]) / span)) : 0];
    }

    // position [3] and rotation [x, y, z, w] of a body
    placed(episode, body, [a, b, f]) {
      const n = this.head.bodies.length, { pos, quat } = episode;
      const p = (a * n + body) * 3, q = (b * n + body) * 3, r = (a * n + body) * 4, s = (b * n + body) * 4;
      const position = [0, 1, 2].map((k) => pos[p + k] + f * (pos[q + k] - pos[p + k]));
      const turn = [1, 2, 3, 0].map((k) => quat[r + k] + f * (quat[s + k] - quat[r + k])), size = Math.hypot(...turn) || 1;
      return [position, turn.map((value) => value / size)];
    }

    place({ sets }, episode, time) {
      const frame = this.frame(episode, time);
      for (const { bodies, places } of sets) {
        bodies.forEach((body, i) => {
          const [position, turn] = this.placed(episode, body, frame);
          places.set(position, 8 * i);
          places.set(turn, 8 * i + 4);
        });
      }
    }

    // two directions across a line, so that the first, the line and the second are right-handed
    static across(dx, dy, dz) {
      const length = Math.hypot(dx, dy, dz) || 1e-9, ux = dx / length, uy = dy / length, uz = dz / length;
      let [sx, sy, sz] = Math.abs(uz) < 0.9 ? [-uy, ux, 0] : [0, -uz, uy];
      const size = Math.hypot(sx, sy, sz) || 1;
      sx /= size; sy /= size; sz /= size;
      return [[sx, sy, sz], [sy * uz - sz * uy, sz * ux - sx * uz, sx * uy - sy * ux]];
    }

    // a unit cylinder along y, as column-major matrix: from a to b with radius r
    static rod(out, at, ax, ay, az, bx, by, bz, r) {
      const dx = bx - ax, dy = by - ay, dz = bz - az;
      const [[sx, sy, sz], [tx, ty, tz]] = View.across(dx, dy, dz);
      out.set([r * sx, r * sy, r * sz, 0, dx, dy, dz, 0, r * tx, r * ty, r * tz, 0, ax, ay, az, 1], at);
    }

    // radius of a muscle that can be seen and does not hide the others
    thickness(radius) {
      return Math.min(0.0045 * this.unit, Math.max(0.0025 * this.unit, radius));
    }

    pull(episode, time) {
      const [a, b, f] = this.frame(episode, time), { paths, act } = episode;
      const slots = paths.length / episode.times.length, n = this.head.tendons.length;
      const { position, normal, color } = this.ropes.geometry.attributes;
      const at = (slot, k) => { const p = paths[a * slots + 3 * slot + k]; return p + f * (paths[b * slots + 3 * slot + k] - p); };
      this.segments.forEach(([from, to, t], i) => {
        const tendon = this.head.tendons[t];
        const activation = act[a * n + t] + f * (act[b * n + t] - act[a * n + t]);
        const radius = this.thickness(tendon.radius) * (tendon.muscle ? 0.75 + 0.5 * activation : 0.5);
        const ends = [from, to].map((slot) => [at(slot, 0), at(slot, 1), at(slot, 2)]);
        const [across, up] = View.across(...[0, 1, 2].map((k) => ends[1][k] - ends[0][k]));
        const colour = tendon.weakened ? [255, 209, 0] : tendon.muscle ? this.palette[Math.round(255 * Math.min(1, Math.max(0, activation)))] : [153, 153, 140];
        for (let side = 0, v = 2 * SIDES * i; side < SIDES; side++) {
          const [c, s] = RING[side], x = c * across[0] + s * up[0], y = c * across[1] + s * up[1], z = c * across[2] + s * up[2];
          for (const end of ends) {
            position.array[3 * v] = end[0] + radius * x;
            position.array[3 * v + 1] = end[1] + radius * y;
            position.array[3 * v + 2] = end[2] + radius * z;
            normal.array[3 * v] = x;
            normal.array[3 * v + 1] = y;
            normal.array[3 * v + 2] = z;
            color.array[4 * v] = colour[0];
            color.array[4 * v + 1] = colour[1];
            color.array[4 * v + 2] = colour[2];
            v++;
          }
        }
      });
      position.needsUpdate = normal.needsUpdate = color.needsUpdate = true;
    }

    push(episode, time) {
      const [a, , f] = this.frame(episode, time), b = f > 0.5 ? Math.min(a + 1, episode.times.length - 1) : a;
      const n = episode.contacts.length, { where, force } = episode;
      const scale = (0.32 * this.head.camera.distance) / (this.strongest || 1), thick = 0.0045 * this.head.camera.distance;
      let count = 0;
      for (let i = 0; i < n; i++) {
        const p = (b * n + i) * 3, [fx, fy, fz] = [force[p], force[p + 1], force[p + 2]], size = Math.hypot(fx, fy, fz);
        if (size < 0.01 * this.strongest) continue;
        const [x, y, z] = [where[p], where[p + 1], where[p + 2]], length = scale * size, tipLength = Math.min(6 * thick, 0.5 * length);
        const [ux, uy, uz] = [fx / size, fy / size, fz / size], body = length - tipLength;
        View.rod(this.shafts.instanceMatrix.array, 16 * count, x, y, z, x + ux * body, y + uy * body, z + uz * body, thick);
        View.rod(this.cones.instanceMatrix.array, 16 * count, x + ux * body, y + uy * body, z + uz * body, x + ux * length, y + uy * length, z + uz * length, 2.4 * thick);
        count++;
      }
      for (const mesh of [this.shafts, this.cones]) { mesh.count = count; mesh.instanceMatrix.needsUpdate = true; }
    }

    at(time) {
      if (time === this.time) return;
      this.time = time;
      const episode = this.episodes[this.chosen ?? 0];
      this.place(this.body, episode, time);
      if (this.ghost.all.visible) this.place(this.ghost, this.episodes[this.compared], time);
      if (this.ropes.visible) this.pull(episode, time);
      if (this.shafts.visible) this.push(episode, time);
      const track = this.head.camera.track;
      if (track !== null && find(".follow").checked) {
        const [[x, y]] = this.placed(episode, track, this.frame(episode, time)), [x0, y0] = [episode.pos[3 * track], episode.pos[3 * track + 1]];
        const move = [x - x0 - this.followed[0], y - y0 - this.followed[1]];
        for (const point of [this.controls.target, this.camera.position]) { point.x += move[0]; point.y += move[1]; }
        this.followed = [x - x0, y - y0];
        this.controls.update();
      }
      this.dirty();
    }

    dirty() {
      if (this.waiting || !this.seen) { this.stale = true; return; }
      this.waiting = true;
      requestAnimationFrame((now) => { this.waiting = false; this.draw(now); });
    }

    draw(now) {
      this.stale = false;
      const css = getComputedStyle(document.documentElement), scheme = report.colour("code", css);
      if (scheme !== this.scheme) {
        this.scheme = scheme;
        this.renderer.setClearColor(View.shown(scheme));
        this.lines?.material.color.copy(View.shown(report.colour("line", css)));
      }
      const { clientWidth: width, clientHeight: height } = stage;
      if (width !== this.width || height !== this.height || this.ratio !== this.renderer.getPixelRatio()) {
        [this.width, this.height] = [width, height];
        this.renderer.setPixelRatio(this.ratio);
        this.renderer.setSize(width, height, false);
        this.camera.aspect = width / height;
        // what a narrow view would cut off at the sides is shown smaller
        const half = Math.tan((this.head.camera.fovy * Math.PI) / 360) / Math.min(1, this.camera.aspect);
        this.camera.fov = (360 / Math.PI) * Math.atan(half);
        this.camera.updateProjectionMatrix();
      }
      this.renderer.render(this.scene, this.camera);
      this.drawn = (this.drawn ?? 0) + 1;
      box.dataset.frames = this.drawn;
      this.pace(now);
      if (this.pointer) this.look();
      if (find(".now").open) this.list();
    }

    // fewer pixels while the graphics are slow
    pace(now) {
      const took = now - (this.last ?? now);
      this.last = now;
      if (took <= 0 || took > 1000 || this.drawn < 10) return; // it stood still, or began
      this.average = 0.9 * (this.average ?? took) + 0.1 * Math.min(took, 250);
      this.since = (this.since ?? 0) + 1;
      const finer = this.average < 20 && this.ratio < this.finest, coarser = this.average > 31 && this.ratio > 0.5;
      if (this.since > (finer ? 90 : 15) && (finer || coarser)) {
        this.ratio = finer ? Math.min(this.finest, 1.25 * this.ratio) : Math.max(0.5, 0.8 * this.ratio);
        this.since = 0;
      }
    }

    look() {
      const now = performance.now();
      if (now - (this.looked ?? 0) < 80) return;
      this.looked = now;
      const ray = this.ray ??= new THREE.Raycaster();
      ray.setFromCamera(this.pointer, this.camera);
      this.pickable ??= this.targets();
      const episode = this.episodes[this.chosen ?? 0], frame = this.frame(episode, this.time);
      this.pickable.groups.forEach((group, body) => {
        const [position, turn] = this.placed(episode, body, frame);
        group.position.set(...position);
        group.quaternion.set(...turn);
      });
      this.pickable.all.updateMatrixWorld(true);
      const targets = this.ropes.visible ? [this.pickable.all, this.ropes] : [this.pickable.all];
      if (this.ropes.visible) this.ropes.geometry.computeBoundingSphere();
      const hit = ray.intersectObjects(targets, true)[0];
      const text = hit ? (hit.object === this.ropes ? this.aboutMuscle(Math.floor(hit.faceIndex / (2 * SIDES))) : this.aboutBody(hit.object.userData.body)) : "";
      tip.hidden = !text;
      if (tip.textContent !== text) tip.textContent = text;
    }

    values() {
      const episode = this.episodes[this.chosen ?? 0], [a, b, f] = this.frame(episode, this.time), n = this.head.joints.length;
      return this.head.joints.map((joint, j) => {
        const value = episode.joints[a * n + j] + f * (episode.joints[b * n + j] - episode.joints[a * n + j]);
        return { ...joint, text: joint.unit === "°" ? `${value.toFixed(1).replace("-", "−")}°` : `${value.toFixed(3).replace("-", "−")} m` };
      });
    }

    aboutBody(body) {
      const joints = this.values();
      for (let b = body; b > 0; b = this.head.parents[b]) {
        const here = joints.filter((joint) => joint.body === b);
        if (here.length) return [this.head.bodies[body], ...here.slice(0, 8).map((joint) => `${joint.name} ${joint.text}`)].join("\n");
      }
      return this.head.bodies[body];
    }

    aboutMuscle(segment) {
      const t = this.segments[segment][2], { name, muscle } = this.head.tendons[t];
      if (!muscle) return name;
      const episode = this.episodes[this.chosen ?? 0], [a] = this.frame(episode, this.time);
      return `${name}\nactivation ${episode.act[a * this.head.tendons.length + t].toFixed(2)}`;
    }

    list() {
      const now = performance.now();
      if (now - (this.listed ?? 0) < 250) return;
      this.listed = now;
      find(".now dl").replaceChildren(...this.values().map(({ name, text }) => {
        const row = document.createElement("div"), key = document.createElement("dt"), value = document.createElement("dd");
        key.textContent = name;
        value.textContent = text;
        row.append(key, value);
        return row;
      }));
    }
  }

  function connect(view) {
    const again = () => { const { time } = view; view.time = -1; view.at(time); };
    find(".shown").addEventListener("change", (event) => { view.chosen = Number(event.target.value); again(); });
    find(".ghost")?.addEventListener("change", (event) => {
      view.ghost.all.visible = event.target.value !== "";
      view.compared = Number(event.target.value);
      again();
    });
    find(".muscles").addEventListener("change", (event) => { view.ropes.visible = event.target.checked; again(); });
    find(".forces").addEventListener("change", (event) => { view.shafts.visible = view.cones.visible = event.target.checked; again(); });
    find(".follow").addEventListener("change", again);
    find(".reset").addEventListener("click", () => view.reset());
    find(".now").addEventListener("toggle", () => view.dirty());
    canvas.addEventListener("pointermove", (event) => {
      const { left, top, width, height } = canvas.getBoundingClientRect();
      view.pointer = new THREE.Vector2((2 * (event.clientX - left)) / width - 1, 1 - (2 * (event.clientY - top)) / height);
      view.dirty();
    });
    canvas.addEventListener("pointerleave", () => { view.pointer = null; tip.hidden = true; });
    canvas.addEventListener("keydown", (event) => {
      const step = 0.12;
      const action = {
        ArrowLeft: () => view.turn(-step, 0), ArrowRight: () => view.turn(step, 0), ArrowUp: () => view.turn(0, -step), ArrowDown: () => view.turn(0, step),
        "+": () => view.closer(0.9), "=": () => view.closer(0.9), "-": () => view.closer(1.1), 0: () => view.reset(),
        " ": () => (report.clock.playing ? report.pause() : report.play()),
      }[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
    canvas.addEventListener("webglcontextlost", () => { find(".wait").hidden = false; find(".wait").textContent = "The 3-D view was stopped by the browser; load the page again."; });
    report.onClock.push((time) => { if (view.seen) view.at(time); else view.missed = time; });
    new IntersectionObserver(([{ isIntersecting }]) => {
      view.seen = isIntersecting;
      if (isIntersecting) { view.at(report.time ?? 0); view.dirty(); }
    }).observe(stage);
    new ResizeObserver(() => view.dirty()).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.dirty());
  }

  // made when it comes near
  new IntersectionObserver(async (changes, observer) => {
    if (!changes.some((change) => change.isIntersecting)) return;
    observer.disconnect();
    try {
      const view = new View(await unpacked());
      connect(view);
      find(".wait").hidden = true;
      box.dataset.ready = "true";
      report.view = view;
    } catch (error) {
      find(".wait").textContent = `This browser cannot show the 3-D view: ${error.message}`;
    }
  }, { rootMargin: "400px" }).observe(box);
})();
