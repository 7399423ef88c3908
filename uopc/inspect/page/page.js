"use strict";
(() => {
  const root = document.documentElement;
  const every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const say = (text) => { byId("said").textContent = text; };
  root.classList.add("js");

  // ---- choosing: links of a picker show one panel each
  const pickers = every("[data-picker]").map((list) => {
    const links = every("[data-pick]", list);
    const panels = links.map((link) => byId(link.getAttribute("href").slice(1)));
    return { list, links, panels, at: 0 };
  });
  let last = null; // the picker that was used last

  function choose(picker, n, focus) {
    if (!picker.links.length) return;
    picker.at = Math.max(0, Math.min(n, picker.links.length - 1));
    picker.links.forEach((link, i) => {
      if (i === picker.at) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
    picker.panels.forEach((panel, i) => { panel.open = true; panel.hidden = i !== picker.at; });
    if (focus) {
      picker.links[picker.at].focus();
      last = picker;
    }
  }
  pickers.forEach((picker) => {
    choose(picker, 0, false);
    picker.links.forEach((link, i) => link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      choose(picker, i, true);
    }));
  });

  // a link to what stands in a panel that is hidden shows the panel first
  function reveal(id) {
    const target = id && byId(id);
    if (!target) return null;
    for (let at = target; at; at = at.parentElement) {
      pickers.forEach((picker) => {
        const n = picker.panels.indexOf(at);
        if (n >= 0) choose(picker, n, false);
      });
    }
    return target;
  }
  function go(id) {
    const target = reveal(id);
    if (!target) return;
    if (target.matches(".lines > li")) {
      lead(target);
    } else {
      target.scrollIntoView({ block: target.offsetHeight > innerHeight ? "start" : "nearest" });
      const heading = target.matches("details") ? target.querySelector("h2, h3") : target;
      heading.setAttribute("tabindex", "-1");
      heading.focus({ preventScroll: true });
    }
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]:not([data-pick])');
    if (!link) return;
    event.preventDefault();
    go(link.getAttribute("href").slice(1));
  });
  addEventListener("hashchange", () => go(decodeURIComponent(location.hash.slice(1))));

  // ---- lines of the kernel, of the graph and of the user's files, and what belongs together
  const boxes = new Map();
  every("[data-source]").forEach((section) => {
    const key = section.dataset.source;
    const lines = JSON.parse(byId(key + "-links").textContent);
    const back = { g: new Map(), u: new Map() };
    lines.forEach(([nodes, origins], n) => {
      for (const [kind, found] of [["g", nodes], ["u", origins]]) {
        for (const i of found) {
          if (!back[kind].has(i)) back[kind].set(i, []);
          back[kind].get(i).push(n);
        }
      }
    });
    const box = { section, key, lines, back, held: null, lit: [] };
    boxes.set(key, box);
    every(".lines", section).forEach((list) => {
      const first = list.querySelector("button");
      if (first) first.tabIndex = 0;
    });
    section.addEventListener("mouseover", (event) => {
      const row = event.target.closest(".lines > li[id]");
      if (row) light(box, row);
    });
    section.addEventListener("mouseleave", () => light(box, box.held));
    section.addEventListener("click", (event) => {
      const row = event.target.closest(".lines > li[id]");
      if (row && !event.target.closest("a") && !String(getSelection())) hold(box, row);
    });
    section.addEventListener("focusin", (event) => {
      if (event.target.matches(".lines button") && event.target.matches(":focus-visible")) {
        hold(box, event.target.parentElement);
      }
    });
  });

  // a row's own kind (s, g or u) and number
  function place(row) {
    const [, kind, number] = /-([sgu])(\d+)$/.exec(row.id);
    return [kind, Number(number)];
  }
  function together(box, row) {
    const [kind, number] = place(row);
    const of = kind === "s" ? [number - 1] : box.back[kind].get(number) || [];
    const found = { s: of.map((n) => n + 1), g: new Set(), u: new Set() };
    for (const n of of) {
      box.lines[n][0].forEach((g) => found.g.add(g));
      box.lines[n][1].forEach((u) => found.u.add(u));
    }
    if (kind !== "s") {
      found[kind] = new Set([number]);
    }
    return found;
  }
  function light(box, row) {
    box.lit.forEach((old) => old.classList.remove("lit"));
    box.lit = [];
    if (!row) return;
    const found = together(box, row);
    for (const kind of ["s", "g", "u"]) {
      for (const n of found[kind]) {
        const other = byId(`${box.key}-${kind}${n}`);
        if (other) {
          other.classList.add("lit");
          box.lit.push(other);
        }
      }
    }
  }
  function hold(box, row) {
    if (box.held) box.held.classList.remove("held");
    box.held = row;
    row.classList.add("held");
    light(box, row);
    const found = together(box, row);
    const text = sentence(row, found);
    byId(box.key + "-linked").textContent = text;
    say(text);
    const own = row.closest(".pane") || row.closest(".lines");
    const seen = new Set([own]);
    for (const other of box.lit) { // the first one in each of the other boxes comes into view
      const pane = other.closest(".pane") || other.closest(".lines");
      if (seen.has(pane) || pane.scrollHeight <= pane.clientHeight + 1) continue;
      seen.add(pane);
      const top = other.getBoundingClientRect().top - pane.getBoundingClientRect().top;
      pane.scrollTop += top - pane.clientHeight / 3;
    }
  }
  function several(n, one) { return `${n} ${one}${n === 1 ? "" : "s"}`; }
  function sentence(row, found) {
    const [kind, number] = place(row);
    const name = { s: "Line", g: "Node", u: "Your line" }[kind];
    const shown = kind === "s" ? number : row.querySelector("button").textContent;
    const parts = [];
    const told = (own, n, one, of) => {
      if (kind !== own && n) parts.push(`${several(n, one)} of ${of}`);
    };
    told("s", found.s.length, "line", "the source");
    told("g", found.g.size, "node", "the final graph");
    told("u", found.u.size, "line", "yours");
    parts.push(...every(".badges a", row).map((a) => a.textContent));
    return `${name} ${shown}: ${parts.join(", ") || "nothing else belongs to it"}.`;
  }
  function lead(row) {
    const button = row.querySelector("button");
    step(every("button", row.parentElement), button);
    row.scrollIntoView({ block: "center" });
    hold(boxes.get(row.closest("[data-source]").dataset.source), row);
  }
  function step(buttons, to) {
    buttons.forEach((b) => { b.tabIndex = b === to ? 0 : -1; });
    to.focus({ preventScroll: true });
  }

  // ---- keys
  const MOVES = { ArrowDown: 1, ArrowRight: 1, j: 1, ArrowUp: -1, ArrowLeft: -1, k: -1 };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    const jump = { Home: -Infinity, End: Infinity }[event.key];
    const by = MOVES[event.key] ?? jump;
    if (by === undefined) return;
    const list = event.target.closest(".lines");
    if (list && event.target.matches("button")) {
      const buttons = every("button", list);
      const n = buttons.indexOf(event.target) + by;
      const to = buttons[Math.max(0, Math.min(n, buttons.length - 1))];
      event.preventDefault();
      step(buttons, to);
      to.scrollIntoView({ block: "nearest" });
      hold(boxes.get(list.closest("[data-source]").dataset.source), to.parentElement);
      return;
    }
    const inside = pickers.find((p) => p.links.includes(event.target));
    const picker = inside || (event.key === "j" || event.key === "k" ? nearest() : null);
    if (!picker) return;
    event.preventDefault();
    choose(picker, picker.at + by, true);
    say(picker.links[picker.at].textContent);
  });

  // without a focus in one: the picker that was used last while it can be seen, or the next in view
  function nearest() {
    const shown = (p) => p.list.offsetParent !== null;
    const visible = (p) => {
      const { top, bottom } = p.list.getBoundingClientRect();
      return shown(p) && bottom > 0 && top < innerHeight;
    };
    if (last && visible(last)) return last;
    return pickers.find(visible) || (last && shown(last) ? last : pickers.find(shown)) || null;
  }

  // ---- copying
  every("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    const code = byId(button.dataset.copy);
    let done = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      done = true;
    } catch { // not allowed here: select it, and ask the document
      getSelection().selectAllChildren(code);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "copied" : "selected";
    say(button.textContent);
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }));

  if (location.hash) go(decodeURIComponent(location.hash.slice(1)));
})();
