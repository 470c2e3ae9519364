// SPDX-License-Identifier: Apache-2.0
// "/" goes to the search field; arrow keys and the pointer move over the nodes of the map, Enter and a click open one.
"use strict";

const PITCH = 12; // of the cells, in units of the SVG

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("q").focus();
  }
});

const map = document.getElementById("map");
if (map) watch(map);

function watch(map) {
  const columns = Number(map.dataset.columns), count = Number(map.dataset.count);
  const svg = map.querySelector("svg"), cursor = map.querySelector("#cursor");
  const text = document.getElementById("cursor-text");
  let hosts = null, at = 0;

  async function load() {
    if (hosts) return;
    hosts = [];
    const answer = await fetch("/api/fleet");
    if (answer.ok) hosts = (await answer.json()).hosts;
    show(at);
  }

  function show(place) {
    at = Math.max(0, Math.min(count - 1, place));
    cursor.setAttribute("x", (at % columns) * PITCH - 1);
    cursor.setAttribute("y", Math.floor(at / columns) * PITCH - 1);
    cursor.setAttribute("visibility", "visible");
    const host = hosts && hosts[at];
    if (host) text.textContent = describe(host); // as text: a host's name is never read as HTML
  }

  function describe(host) {
    const parts = Object.entries(host.resources).map(([name, use]) => `${name} ${use.used} of ${use.capacity}`);
    const state = host.why_not ? `not choosable: ${host.why_not}${host.disabled_reason ? ` (${host.disabled_reason})` : ""}` : host.freshness;
    return [host.host, state, ...parts].join("  ·  ");
  }

  function open() {
    const host = hosts && hosts[at];
    if (host) location.assign("/host?host=" + encodeURIComponent(host.host));
  }

  function placeOf(event) {
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    const x = ((event.clientX - box.left) / box.width) * view.width + view.x;
    const y = ((event.clientY - box.top) / box.height) * view.height + view.y;
    const place = Math.floor(y / PITCH) * columns + Math.floor(x / PITCH);
    return x >= 0 && y >= 0 && place < count ? place : null;
  }

  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  map.addEventListener("keydown", (event) => {
    if (event.key in steps) show(at + (at + steps[event.key] >= 0 && at + steps[event.key] < count ? steps[event.key] : 0));
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(count - 1);
    else if (event.key === "Enter") open();
    else return;
    event.preventDefault();
  });
  map.addEventListener("focus", () => { show(at); load(); });
  map.addEventListener("pointermove", (event) => { const place = placeOf(event); if (place !== null) { show(place); load(); } });
  map.addEventListener("click", (event) => { const place = placeOf(event); if (place !== null) { show(place); load().then(open); } });
}
