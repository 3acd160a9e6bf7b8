"use strict";
(() => {
  const bar = document.getElementById("filter");
  const table = document.getElementById("table");
  if (!bar || !table) return;
  const FACETS = ["area", "op", "form", "dtype", "ranks", "device"];
  const controls = [...bar.querySelectorAll("input, select")];
  const output = bar.querySelector("output");
  const rows = [...table.querySelectorAll("tr[data-verdict]")].map((element) => ({
    element,
    text: element.id.toLowerCase() + " " + element.querySelector(".statement").textContent.toLowerCase(),
    details: element.querySelector("details"),
    groups: [...element.querySelectorAll(".group")].map((group) => ({ element: group, text: null })),
  }));
  const bodies = [...table.tBodies].map((body) => ({ body, rows: [...body.rows], headings: [...body.querySelectorAll(".area")] }));
  const cards = [...document.querySelectorAll("[data-groups]")].map((element) => ({ element, groups: element.dataset.groups.trim().split(/\s+/) }));
  const order = rows.map((row) => row.element);
  const initial = new Map(rows.map((row) => [row, !!row.details && row.details.open]));

  const values = () => Object.fromEntries(controls.filter((c) => c.value).map((c) => [c.name, c.value]));
  const facet = (row, group, name) => (group && group.dataset[name]) ?? row.dataset[name];
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

  function fits(row, group, chosen, query) {
    if (chosen.verdict && (group || row.element).dataset.verdict !== chosen.verdict) return false;
    if (FACETS.some((name) => chosen[name] && facet(row.element, group, name) !== chosen[name])) return false;
    return !query.length;
  }

  function apply() {
    const chosen = values();
    const query = words(chosen.q || "");
    const narrowed = Object.keys(chosen).some((name) => name !== "sort");
    const visible = new Set();
    let shownRows = 0, shownGroups = 0, allGroups = 0;
    for (const row of rows) {
      const rest = query.filter((word) => !row.text.includes(word));
      let matches = 0;
      for (const group of row.groups) {
        if (rest.length) group.text ??= (group.element.querySelector("a").textContent + " " + group.element.querySelector(".ids").textContent).toLowerCase();
        const left = rest.filter((word) => !group.text.includes(word));
        const fit = fits(row, group.element, chosen, left);
        if (group.element.hidden === fit) group.element.hidden = !fit;
        if (fit) { matches += 1; visible.add(group.element.id); }
      }
      const shown = matches > 0 || fits(row, null, chosen, rest);
      row.element.hidden = !shown;
      row.matches = matches;
      shownRows += shown;
      shownGroups += matches;
      allGroups += row.groups.length;
    }
    for (const row of rows) {
      if (row.details) row.details.open = narrowed ? shownRows <= 12 && row.matches > 0 : initial.get(row);
    }
    for (const card of cards) card.element.hidden = narrowed && !card.groups.some((id) => visible.has(id));
    sort(chosen.sort || "");
    for (const { headings, body } of bodies) {
      for (const heading of headings) heading.hidden = !!chosen.sort || ![...body.rows].some((r) => r.dataset.verdict && !r.hidden);
    }
    output.textContent = narrowed
      ? shownRows ? `${shownRows.toLocaleString("en")} of ${rows.length.toLocaleString("en")} requirements, ${shownGroups.toLocaleString("en")} of ${allGroups.toLocaleString("en")} groups` : "Nothing fits. Clear the filter to see everything."
      : `${rows.length.toLocaleString("en")} requirements, ${allGroups.toLocaleString("en")} groups`;
  }

  let sorted = "";
  function sort(by) {
    if (by === sorted) return;
    sorted = by;
    if (!by) {
      for (const { body, rows: own } of bodies) body.append(...own);
      return;
    }
    const sign = by === "order" ? 1 : -1;
    const key = (element) => sign * Number(element.dataset[by]);
    bodies[0].body.append(...[...order].sort((a, b) => key(a) - key(b)));
  }

  function save() {
    const state = new URLSearchParams(values()).toString();
    history.replaceState(null, "", state ? "#" + state : location.pathname + location.search);
  }

  function set(chosen) {
    for (const control of controls) {
      control.value = chosen[control.name] ?? "";
      if (control.selectedIndex === -1) control.value = "";
    }
    apply();
  }

  function follow() {
    const fragment = location.hash.slice(1);
    if (fragment.includes("=")) { set(Object.fromEntries(new URLSearchParams(fragment))); return; }
    let target = null;
    try { target = document.getElementById(decodeURIComponent(fragment)); } catch { return; }
    if (!fragment || !target) return;
    if (target.closest("[hidden]")) set({});
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    target.querySelector(":scope > .text > details")?.setAttribute("open", "");
    target.scrollIntoView();
  }

  bar.hidden = false;
  let timer = 0;
  for (const name of ["input", "change"]) {
    bar.addEventListener(name, () => { clearTimeout(timer); timer = setTimeout(() => { apply(); save(); }, 80); });
  }
  bar.querySelector("button").addEventListener("click", () => { set({}); save(); controls[0].focus(); });
  document.addEventListener("click", (event) => {
    const cell = event.target.closest?.("a.cell");
    if (!cell || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    set({ ...cell.dataset });
    history.pushState(null, "", "#" + new URLSearchParams(values()));
    bar.scrollIntoView();
    controls[0].focus({ preventScroll: true });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    controls[0].focus();
  });
  addEventListener("hashchange", follow);
  addEventListener("popstate", () => { if (!location.hash) set({}); });
  apply();
  follow();
})();
