// Keeps the page up to date from the JSON of the agent. Without this script, the page shows all figures of the moment of
// loading.
"use strict";
const WIDTH = 1000, HEIGHT = 60, STEPS = 299, EVERY = 2000;
const state = document.getElementById("state");

const json = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};
// Sizes are rounded down, so that none looks larger than it is. The command line does the same.
const size = (bytes) => {
  const units = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const found = units.find(([unit]) => bytes >= unit);
  return found ? `${(Math.floor(bytes * 100 / found[0]) / 100).toFixed(2)} ${found[1]}` : `${bytes} B`;
};
const limit = (bytes) => {
  if (bytes === null) return "none";
  const unit = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([unit]) => bytes >= unit && bytes % unit === 0);
  const exact = unit ? `${bytes / unit[0]}${unit[1]}` : "";
  return exact && exact.length <= 9 ? exact : size(bytes);
};
const percent = (permille) => `${permille % 10 ? (permille / 10).toFixed(1) : permille / 10}%`;
// The text is `-` if the time is not measured.
const used = (permille) => permille === null ? "-" : percent(permille);
const span = (ns) => {
  const found = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]].find(([unit]) => ns >= unit);
  return found ? `${(Math.floor(ns * 100 / found[0]) / 100).toFixed(2)} ${found[1]}` : `${ns} ns`;
};
const or = (value, show) => value === null ? "unknown" : show(value);
const share = (part, whole) => whole > 0 ? Math.min(WIDTH, Math.floor(part * WIDTH / whole)) : 0;

const write = (element, field, text) => {
  const place = element.querySelector(`[data-f="${field}"]`);
  if (place && place.textContent !== String(text)) place.textContent = text;
};
const show = (element, field, text) => {
  const place = element.querySelector(`[data-f="${field}"]`);
  if (!place) return;
  place.hidden = !text;
  if (text) place.textContent = text;
};
// Writes the list of a slice's processes. An unchanged list is not written again, so that a selected text stays selected.
const list = (element, processes) => {
  const details = element.querySelector("details"), places = details.querySelector("ul");
  const items = processes.map(({ host_pid, pid, memory_used, command }) => {
    const item = document.createElement("li"), code = document.createElement("code");
    code.textContent = command ?? "(not visible from here)";
    item.append(`${host_pid ?? pid} ${size(memory_used)} `, code);
    return item;
  });
  const texts = (all) => JSON.stringify([...all].map((one) => one.textContent));
  if (texts(items) !== texts(places.children)) places.replaceChildren(...items);
  details.hidden = !items.length;
};
const draw = (element, field, parts) => {
  const bar = element.querySelector(`svg[data-f="${field}"]`);
  let at = 0;
  [...bar.querySelectorAll("rect:not(.empty)")].forEach((rect, place) => {
    const [title, length] = parts[place] ?? ["", 0];
    const width = Math.min(length, WIDTH - at);
    rect.setAttribute("x", at);
    rect.setAttribute("width", width);
    rect.querySelector("title").textContent = title;
    at += width;
  });
  bar.setAttribute("aria-label", parts.map(([title]) => title).join(", "));
};
const path = (points, value) => {
  let text = "", drawn = false;
  points.forEach((point, place) => {
    const part = value(point);
    if (part === null) { drawn = false; return; }
    const across = Math.floor((STEPS + 1 - points.length + place) * WIDTH / STEPS);
    text += `${drawn ? "L" : "M"}${across} ${HEIGHT - Math.min(HEIGHT, Math.floor(part * HEIGHT))}`;
    drawn = true;
  });
  return text;
};
const plot = (element, line) => {
  if (!line) return;
  const mib = Number(element.querySelector("figure").dataset.memoryMib);
  const set = (field, value) => element.querySelector(`[data-f="plot-${field}"]`)?.setAttribute("d", path(line.points, value));
  set("memory", (point) => point.memory_mib === null ? null : point.memory_mib / mib);
  set("time", (point) => point.used_permille === null ? null : point.used_permille / 1000);
  set("throttled", (point) => point.throttled_permille / 1000);
};

// Distinguishes slices of the same name by their containers.
const place = (slice) => slice.made ? "" : slice.container ?? "";

// Identifies the slices and GPUs for which the page has elements.
const identity = (gpus, slices) => JSON.stringify([
  gpus.map((gpu) => gpu.uuid),
  slices.flatMap((slice) => slice.devices.length ? slice.devices.map((device) => [slice.name, place(slice), device.uuid]) : [[slice.name, "", ""]]),
]);
const shown = () => JSON.stringify([
  [...document.querySelectorAll("[data-gpu]")].map((one) => one.dataset.gpu),
  [...document.querySelectorAll("[data-slice]")].map((one) => [one.dataset.slice, one.dataset.container, one.dataset.uuid]),
]);

// Identifies an element of the page. The same element of a page that replaces this one has the same key.
const key = (one) => JSON.stringify([one.id, one.tagName, { ...one.closest("article")?.dataset }]);

// Replaces the slices and GPUs. The focused element keeps the focus, and open lists of processes stay open.
const renew = async () => {
  const answer = await fetch("/");
  if (!answer.ok) throw new Error(`/: ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const old = document.querySelector("main"), renewed = page.querySelector("main");
  const focused = old.contains(document.activeElement) && key(document.activeElement);
  const open = [...old.querySelectorAll("details[open]")].map(key);
  old.replaceWith(renewed);
  for (const one of renewed.querySelectorAll("details")) one.open = open.includes(key(one));
  if (focused) [...renewed.querySelectorAll("[tabindex], summary")].find((one) => key(one) === focused)?.focus();
};

const update = async () => {
  const [{ gpus, driver }, { slices }, { lines }] = await Promise.all(["gpus", "slices", "history"].map((name) => json(`/api/v1/${name}`)));
  document.getElementById("driver").textContent = driver === null ? "NVML does not answer" : `driver ${driver}`;
  if (identity(gpus, slices) !== shown()) await renew();
  const line = (container, slice, uuid) => lines.find((one) => one.container === container && one.slice === slice && one.uuid === uuid);
  for (const element of document.querySelectorAll("[data-gpu]")) {
    const gpu = gpus.find((one) => one.uuid === element.dataset.gpu);
    if (!gpu) continue;
    const on = slices.flatMap((slice) => slice.devices.filter((device) => device.uuid === gpu.uuid).map((device) => [slice, device]));
    const total = or(gpu.memory_total, limit);
    write(element, "memory-text", `${or(gpu.memory_used, size)} used of ${total}, slices hold ${size(gpu.memory_held)}`);
    write(element, "time-text", `slices use ${used(gpu.used_permille)}, busy by NVML ${or(gpu.utilization_percent, (busy) => `${busy}%`)}`);
    write(element, "sums-text", `quotas ${size(gpu.limit_sum)} of ${total}, fixed shares ${percent(gpu.share_permille_sum)} of 100%`);
    element.querySelector('[data-f="health"]').hidden = gpu.healthy;
    const whole = gpu.memory_total ?? Math.max(gpu.limit_sum, gpu.memory_held);
    const others = Math.max(0, (gpu.memory_used ?? 0) - gpu.memory_held);
    draw(element, "memory", [
      ...on.map(([slice, device]) => [`${slice.name}: ${size(device.memory_used)}`, share(device.memory_used, whole)]),
      [`others: ${size(others)}`, share(others, whole)],
    ]);
    draw(element, "time", on.map(([slice, device]) => [`${slice.name}: ${used(device.used_permille)}`, share(device.used_permille, 1000)]));
    const warnings = element.querySelector('[data-f="warnings"]');
    warnings.replaceChildren(...gpu.warnings.map((text) => Object.assign(document.createElement("li"), { className: "bad", textContent: text })));
    plot(element, line("", "", gpu.uuid));
  }
  for (const element of document.querySelectorAll("[data-slice]")) {
    const { slice: name, container, uuid } = element.dataset;
    const slice = slices.find((one) => one.name === name && place(one) === container);
    if (slice) show(element, "problem", slice.problem);
    const device = slice?.devices.find((one) => one.uuid === uuid);
    if (!device) continue;
    const total = gpus.find((gpu) => gpu.uuid === uuid)?.memory_total ?? null;
    write(element, "memory-text", `${size(device.memory_used)} used, limit ${limit(device.memory_limit)}`);
    draw(element, "memory", [[size(device.memory_used), share(device.memory_used, device.memory_limit ?? total ?? device.memory_used)]]);
    write(element, "time-text", `${used(device.used_permille)} used, limit ${percent(device.share_permille)} ${device.policy}`);
    draw(element, "time", [[used(device.used_permille), share(device.used_permille, 1000)]]);
    const mark = element.querySelector('svg[data-f="time"] .limit');
    for (const end of ["x1", "x2"]) mark.setAttribute(end, share(device.share_permille, 1000));
    write(element, "throttled", span(device.throttled_ns));
    write(element, "denied", device.denied);
    write(element, "peak", size(device.memory_peak));
    write(element, "processes", slice.process_count);
    list(element, slice.processes);
    const most = device.memory_limit ?? total;
    if (most !== null) element.querySelector("figure").dataset.memoryMib = Math.max(1, Math.floor(most / 2 ** 20));
    plot(element, line(container, name, uuid));
  }
};

const live = async () => {
  try {
    await update();
    state.textContent = "live";
    state.className = "";
  } catch (error) {
    state.textContent = `not live: ${error.message}`;
    state.className = "bad";
  }
  setTimeout(live, EVERY);
};
live();
