"use strict";
(() => {
  const player = document.getElementById("player");
  const axis = Number(document.body.dataset.axis);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const steps = [...document.querySelectorAll(".step")];
  const timed = [...document.querySelectorAll(".step[data-start], .sentence[data-start]")].map((node) => ({
    node, start: Number(node.dataset.start), end: Number(node.dataset.end), at: Number(node.dataset.at),
    step: node.classList.contains("step"),
  }));
  const cursors = document.querySelectorAll("[data-cursor]");
  player?.addEventListener("loadedmetadata", () => {
    if (player.videoWidth) document.body.classList.toggle("portrait", player.videoHeight > player.videoWidth);
  });

  const clock = (seconds) => {
    const whole = Math.floor(seconds), two = (value) => String(value).padStart(2, "0");
    const hour = Math.floor(whole / 3600), minute = Math.floor(whole / 60) % 60;
    return hour ? `${hour}:${two(minute)}:${two(whole % 60)}` : `${minute}:${two(whole % 60)}`;
  };

  const seek = (seconds, play) => {
    if (!player || !Number.isFinite(seconds)) return;
    player.currentTime = seconds;
    if (play) player.play().catch(() => { /* the browser may want a second press: the seek has been done */ });
  };

  const told = document.getElementById("told");
  const tell = (text) => { if (told) told.textContent = text; };
  const copy = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
      tell(`${what} copied`);
    } catch {
      tell("the browser does not let this page copy");
    }
  };
  const wordsOf = (step) => {
    const part = (name) => step.querySelector(name)?.textContent.trim();
    const avoid = step.querySelector(".badge.avoid") ? "Avoid: " : "";
    return [`${part(".number")}. ${avoid}${part(".text")}`, part(".times") && `(${part(".times")})`].filter(Boolean).join(" ");
  };
  for (const bar of document.querySelectorAll(".controls")) bar.hidden = false;
  document.getElementById("copy")?.addEventListener("click", () => {
    copy([document.querySelector("h1").textContent.trim(), ...steps.map(wordsOf)].join("\n") + "\n", `${steps.length} steps`);
  });

  /* Search of the transcript: every match is marked, the current one is shown and the player goes there. */
  const find = document.getElementById("wanted"), matches = document.getElementById("matches");
  const spoken = [...document.querySelectorAll(".sentence")].map((node) => {
    const words = node.querySelector("bdi");
    return { node, words, text: words.textContent };
  });
  let found = [], chosen = -1;
  const choose = (by) => {
    if (!found.length) return;
    found[chosen]?.mark.classList.remove("chosen");
    chosen = (chosen + by + found.length) % found.length;
    const { mark, node } = found[chosen];
    mark.classList.add("chosen");
    matches.textContent = `${chosen + 1} of ${found.length}`;
    node.scrollIntoView({ block: "center", behavior: calm.matches ? "auto" : "smooth" });
    seek(Number(node.dataset.start), false);
  };
  const search = () => {
    const wanted = find.value.trim().split(/\s+/).map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("\\s+");
    const pattern = wanted && new RegExp(wanted, "giu");
    found = [];
    chosen = -1;
    for (const { node, words, text } of spoken) {
      const pieces = [];
      let from = 0;
      for (const match of pattern ? text.matchAll(pattern) : []) {
        const mark = document.createElement("mark");
        mark.textContent = match[0];
        pieces.push(text.slice(from, match.index), mark);
        from = match.index + match[0].length;
        found.push({ mark, node });
      }
      if (pieces.length || words.firstElementChild) words.replaceChildren(...pieces, text.slice(from));
    }
    matches.textContent = !pattern ? "" : found.length === 1 ? "1 match" : `${found.length || "no"} matches`;
  };
  if (find) {
    find.addEventListener("input", search);
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") choose(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") { find.value = ""; search(); find.blur(); }
    });
    document.getElementById("find-on").addEventListener("click", () => choose(1));
    document.getElementById("find-back").addEventListener("click", () => choose(-1));
  }

  const share = (event, area) => {
    const box = area.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-seek]");
    if (target) return seek(Number(target.dataset.seek), true);
    const area = event.target.closest("[data-scrub]");
    if (area) seek(share(event, area) * axis, false);
  });

  /* Which row and second of the alignment is pointed at. */
  const pointed = document.getElementById("pointed");
  const lines = [...document.querySelectorAll(".lines li")];
  const map = document.querySelector("[data-rows]");
  const point = (row, text) => {
    lines.forEach((line, index) => line.classList.toggle("pointed", index === row));
    pointed.textContent = text;
  };
  if (map) {
    map.addEventListener("pointermove", (event) => {
      const row = Math.floor((event.clientY - map.getBoundingClientRect().top) / Number(map.dataset.rows));
      const at = clock(share(event, map) * axis);
      point(row, row < lines.length ? `${at} · ${lines[row].title}` : at);
    });
    map.addEventListener("pointerleave", () => point(-1, ""));
  }

  /* Keyboard: j and k walk the steps, arrows too once a step has the focus; Enter is the button's own. */
  const walk = (by) => {
    const here = steps.findIndex((step) => step.contains(document.activeElement));
    const playing = steps.findIndex((step) => step.classList.contains("now-playing"));
    const from = here >= 0 ? here : playing >= 0 ? playing : by > 0 ? -1 : steps.length;
    const next = steps[Math.min(steps.length - 1, Math.max(0, from + by))];
    if (!next) return;
    next.querySelector(".go").focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
  };
  const onStep = () => document.activeElement && document.activeElement.classList.contains("go");
  const moves = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 };
  const keys = document.getElementById("keys");
  const press = { "?": () => keys.showModal(), "/": () => find?.focus() };
  document.getElementById("keys-close").addEventListener("click", () => keys.close());
  document.getElementById("help")?.addEventListener("click", press["?"]);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open || event.target.closest("input, textarea, select")) return;
    if (press[event.key] && !(event.key.startsWith("Arrow") && event.target === player)) {
      event.preventDefault();
      return press[event.key]();
    }
    const by = moves[event.key];
    if (by && (event.key.length === 1 || onStep())) {
      event.preventDefault();
      walk(by);
    } else if (event.key === " " && player && (onStep() || document.activeElement === document.body)) {
      event.preventDefault();
      if (player.paused) player.play().catch(() => {}); else player.pause();
    }
  });

  document.addEventListener("keyup", (event) => {
    if (event.key === " " && player && onStep()) event.preventDefault();   /* Firefox presses the button here */
  });

  if (!player) return;
  const speed = document.getElementById("speed"), speeds = [...speed.options].map((option) => Number(option.value));
  const faster = (by) => {
    const here = speeds.indexOf(player.playbackRate);
    speed.value = String(speeds[Math.min(speeds.length - 1, Math.max(0, (here < 0 ? speeds.indexOf(1) : here) + by))]);
    player.playbackRate = Number(speed.value);
  };
  speed.addEventListener("change", () => { player.playbackRate = Number(speed.value); });
  player.addEventListener("ratechange", () => { speed.value = String(player.playbackRate); });

  /* The step that is played again and again; a seek out of it takes up the step that is there, or ends the loop. */
  const loopButton = document.getElementById("loop"), stepsInTime = timed.filter(({ step }) => step);
  let loop = null;
  const setLoop = (item) => {
    loop = item || null;
    loopButton.setAttribute("aria-pressed", String(Boolean(loop)));
    loopButton.textContent = loop ? `Loops step ${loop.node.querySelector(".number").textContent}` : "Loop step";
  };
  /* Of steps that overlap, the one whose most likely second is nearest is the one playing. */
  const stepAt = (time) => stepsInTime.filter(({ start, end }) => start <= time && time < end)
    .sort((a, b) => Math.abs(a.at - time) - Math.abs(b.at - time))[0];
  const toggleLoop = () => {
    if (loop) return setLoop(null);
    const time = player.currentTime, focused = document.activeElement && document.activeElement.closest(".step");
    const item = stepsInTime.find(({ node }) => node === focused) || stepAt(time) || stepsInTime.find(({ start }) => start >= time);
    setLoop(item);
    if (item && !(item.start <= time && time < item.end)) seek(item.start, false);
  };
  loopButton.addEventListener("click", toggleLoop);
  player.addEventListener("seeking", () => {
    const time = player.currentTime;
    if (loop && !(loop.start - 0.3 <= time && time < loop.end)) setLoop(stepAt(time));
  });
  player.addEventListener("ended", () => { if (loop) seek(loop.start, true); });
  const linkHere = () => copy(`${location.href.split("#")[0]}#t=${Math.floor(player.currentTime)}`, "link");
  document.getElementById("copy-link").addEventListener("click", linkHere);
  Object.assign(press, {
    l: toggleLoop, c: linkHere, "<": () => faster(-1), ">": () => faster(1),
    ArrowLeft: () => seek(Math.max(0, player.currentTime - 5), false), ArrowRight: () => seek(player.currentTime + 5, false),
  });

  const now = document.getElementById("now"), nowLink = document.getElementById("now-link");
  let current = null;

  const show = () => {
    const time = player.currentTime, whole = Math.floor(time);
    nowLink.href = `#t=${whole}`;
    nowLink.textContent = `link to ${clock(whole)}`;
    if (loop && !player.paused && !player.seeking && time >= loop.end) seek(loop.start, true);
    const x = `${Math.min(100, (100 * time) / axis)}%`;
    cursors.forEach((line) => { line.setAttribute("x1", x); line.setAttribute("x2", x); });
    const inside = timed.filter(({ start, end }) => start <= time && time < end);
    const nearest = stepAt(time), playing = nearest ? nearest.node : null;
    for (const item of timed) {
      const here = inside.includes(item), main = here && (!item.step || item.node === playing);
      item.node.classList.toggle("now-playing", main);
      item.node.classList.toggle("also-playing", here && !main);
    }
    if (playing === current) return;
    if (current) current.removeAttribute("aria-current");
    if (playing) playing.setAttribute("aria-current", "true");
    current = playing;
    now.hidden = false;
    document.getElementById("now-number").textContent = playing ? playing.querySelector(".number").textContent : "";
    document.getElementById("now-number").hidden = !playing;
    document.getElementById("now-text").textContent = playing ? playing.querySelector(".text").textContent : "no step";
  };
  /* Links into the video: #t=83 and #t=1:23, #step-4, which also shows the step, and ?t=83, as search engines take it. */
  const follow = () => {
    const time = /^[#?]t=((?:\d+:){0,2}\d+(?:\.\d+)?)$/.exec(location.hash || location.search);
    const step = /^#step-\d+$/.test(location.hash) && document.querySelector(location.hash + " .go[data-seek]");
    if (time) seek(time[1].split(":").reduce((sum, part) => 60 * sum + Number(part), 0), false);
    else if (step) seek(Number(step.dataset.seek), false);
  };
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {   /* a link to where the address is already changes no hash */
    const link = event.target.closest("a");
    if (link && link.hash === location.hash) follow();
  });
  player.addEventListener("loadedmetadata", follow, { once: true });
  if (player.readyState >= 1) follow();

  let frame = 0;
  const tick = () => { show(); frame = player.paused ? 0 : requestAnimationFrame(tick); };
  player.addEventListener("play", () => { if (!frame) tick(); });
  for (const kind of ["timeupdate", "seeking", "loadedmetadata"]) player.addEventListener(kind, show);

  /* A page that was moved away from its video can be given it again; nothing is uploaded. */
  const unplayable = document.getElementById("unplayable");
  const unplayed = document.getElementById("unplayed");
  const failed = () => { unplayable.hidden = false; };
  player.addEventListener("error", failed);
  if (player.error) failed();
  document.getElementById("choose").addEventListener("change", (event) => {
    const [file] = event.target.files;
    if (!file) return;
    unplayable.hidden = true;
    unplayed.textContent = `${file.name}, which this browser cannot decode; convert it to mp4`;
    player.src = URL.createObjectURL(file);
  });
})();
