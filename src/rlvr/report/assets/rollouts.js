(function () {
  const table = document.getElementById("groups");
  if (!table) return;
  const body = table.tBodies[0];
  const { steps, vocabulary } = DATA.rollouts;
  const pick = { step: document.getElementById("step"), kind: document.getElementById("kind"), has: document.getElementById("has") };
  const sort = { by: "", down: false };
  let stream = "advantage";

  const tip = el("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.appendChild(tip);

  function bytes(text) {
    const raw = atob(text), out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }
  function indices(text) {
    const b = bytes(text), out = new Array(b.length / 3);
    for (let i = 0; i < out.length; i++) out[i] = b[3 * i] | b[3 * i + 1] << 8 | b[3 * i + 2] << 16;
    return out;
  }
  function floats(packed, n) { // three upper bytes of each float32; see embed.pack
    const out = new Float32Array(n);
    if (typeof packed !== "string") return out.fill(packed === null ? NaN : packed);
    const b = bytes(packed), bits = new Uint32Array(out.buffer);
    for (let i = 0; i < n; i++) bits[i] = (b[3 * i] << 8 | b[3 * i + 1] << 16 | b[3 * i + 2] << 24) >>> 0;
    return out;
  }

  const mean = (values) => values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
  const known = (values) => values.filter((v) => v !== null && Number.isFinite(v));
  function facts(group) {
    const rows = group.rows;
    return {
      task: group.task, prompt: group.prompt, kind: group.kind,
      right: rows.filter((r) => r.verdict === "right").length / Math.max(1, rows.length),
      reward: mean(known(rows.filter((r) => r.verdict !== "unknown").map((r) => r.reward))),
      length: mean(rows.map((r) => r.length)),
    };
  }

  function has(group, what) {
    return !what || group.rows.some((r) => r.verdict === what || r.status === what);
  }

  function draw() {
    const step = steps[Number(pick.step.value)];
    let groups = step.groups.filter((g) => (!pick.kind.value || g.kind === pick.kind.value) && has(g, pick.has.value));
    groups = groups.map((g) => [g, facts(g)]);
    if (sort.by) {
      groups.sort(([, a], [, b]) => {
        const x = a[sort.by], y = b[sort.by];
        if (x === null || y === null) return (x === null) - (y === null);
        const order = typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0;
        return sort.down ? -order : order;
      });
    }
    const recorded = step.of > step.groups.length ? `${step.groups.length} kept of ${step.of} groups` : `${step.of} groups`;
    document.getElementById("count").textContent = groups.length < step.groups.length ? `${groups.length} shown, ${recorded}` : recorded;
    body.replaceChildren(...groups.map(([g, f]) => row(g, f)));
  }

  function cell(cls, ...children) {
    const td = el("td", cls);
    td.append(...children);
    return td;
  }

  function row(group, f) {
    const tr = el("tr", "group");
    const button = el("button", "open", group.task);
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    const right = group.rows.filter((r) => r.verdict === "right").length;
    const unknown = group.rows.filter((r) => r.verdict === "unknown").length;
    const lengths = group.rows.map((r) => r.length);
    tr.append(
      cell("", button),
      cell("wide", el("span", "start", group.prompt.slice(0, 300))),
      cell("", el("span", "kind " + group.kind, group.kind)),
      cell("num", `${right} of ${group.rows.length}`, ...(unknown ? [el("br"), el("small", "", `${unknown} unknown`)] : [])),
      cell("num", num(f.reward)),
      cell("num", num(f.length), " ", el("small", "", `${Math.min(...lengths)}–${Math.max(...lengths)}`)),
    );
    tr.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) tr.nextSibling.remove();
      else tr.after(detail(group));
    });
    return tr;
  }

  function scales(group) { // one scale a stream for the whole group, so that its rollouts can be compared
    const out = {};
    for (const r of group.rows) for (const [name, packed] of Object.entries(r.streams || {})) {
      r.values = r.values || {};
      r.values[name] = floats(packed, r.ids.length);
      (out[name] = out[name] || []).push(...r.values[name].filter(Number.isFinite));
    }
    for (const name of Object.keys(out)) {
      const values = out[name].sort((a, b) => a - b), n = values.length;
      const low = n ? values[0] : 0, high = n ? values[n - 1] : 0;
      const signed = name.endsWith("advantage") || (low < 0 && high > 0);
      const turned = !signed && low < 0; // log-probs: the unlikely is the strong colour
      const most = turned ? -values[Math.floor(0.01 * (n - 1))] : n ? values[Math.ceil(0.99 * (n - 1))] : 0;
      out[name] = { signed, sign: turned ? -1 : 1, max: (signed ? Math.max(-low, high) : most) || 1 };
    }
    return out;
  }

  function paint(span, value, scale) {
    span.classList.toggle("hatched", !Number.isFinite(value));
    if (!Number.isFinite(value)) { span.style.backgroundColor = ""; return; }
    const part = Math.max(-1, Math.min(1, scale.sign * value / scale.max));
    const hue = scale.signed ? (part >= 0 ? "--up" : "--down") : "--seq";
    span.style.backgroundColor = `rgba(var(${hue}), ${(0.6 * Math.abs(part)).toFixed(3)})`;
  }

  function detail(group) {
    for (const r of group.rows) if (r.tokens !== undefined && !r.ids) r.ids = indices(r.tokens);
    const scale = scales(group), names = Object.keys(scale);
    if (!names.includes(stream) && names.length) stream = names[0];
    const tr = el("tr", "detail"), td = el("td"), pane = el("div", "pane");
    td.colSpan = 6;
    tr.append(td);
    td.append(pane);
    const wanted = el("p", "", "Wanted: ");
    wanted.append(el("code", "model", group.answer));
    pane.append(el("pre", "model tall", group.prompt), wanted);

    const key = el("div", "key"), painted = [];
    function colour() {
      for (const { spans, r } of painted) spans.forEach((s, i) => paint(s, r.values[stream] ? r.values[stream][i] : NaN, scale[stream]));
      const s = scale[stream], ramp = el("span", "ramp");
      ramp.style.backgroundImage = s.signed
        ? "linear-gradient(90deg, rgba(var(--down), .6), transparent, rgba(var(--up), .6))"
        : "linear-gradient(90deg, transparent, rgba(var(--seq), .6))";
      key.replaceChildren(num(s.signed ? -s.max : 0), ramp, num(s.sign * s.max), el("span", "box hatched"), "no value");
    }
    if (names.length) {
      const choice = el("fieldset"), group_name = "stream-" + Math.random();
      choice.append(el("legend", "", "Colour tokens by"));
      for (const name of names) {
        const label = el("label"), input = el("input");
        Object.assign(input, { type: "radio", name: group_name, value: name, checked: name === stream });
        input.addEventListener("change", () => { stream = name; colour(); });
        label.append(input, " ", name === "gap" ? "sampler gap" : name);
        choice.append(label);
      }
      pane.append(choice, key);
    }
    let room = 6000; // tokens laid out at once; the rest when it is opened
    for (const r of group.rows) {
      const box = rollout(r, (spans) => { painted.push({ spans, r }); colour(); });
      if (room > 0) box.open = true;
      room -= r.ids ? r.ids.length : 200;
      pane.append(box);
    }
    return tr;
  }

  function rollout(r, ready) {
    const box = el("details", "rollout"), summary = el("summary");
    const said = [r.reason, r.status !== "finished" ? r.status : "", r.source !== "fresh" ? r.source : ""].filter(Boolean).join(", ");
    summary.append(el("span", "verdict " + r.verdict, r.verdict), el("span", "", "reward " + num(r.reward)));
    const got = el("span", "", r.extracted === null ? "" : "got ");  // a function need not say what it took
    if (r.extracted !== null) got.append(el("code", "model", r.extracted));
    summary.append(got, el("span", "soft", said), el("span", "soft", r.length + " tokens"));
    for (const [name, value] of Object.entries(r.parts)) summary.append(el("span", "soft", `${name} ${num(value)}`));
    box.append(summary);
    let built = false;
    box.addEventListener("toggle", () => {
      if (!box.open || built) return;
      built = true;
      if (r.ids) {
        const view = el("div", "tokens"), spans = r.ids.map((k) => el("span", "", shown(vocabulary[k][1])));
        view.tabIndex = 0;
        view.setAttribute("role", "group");
        view.setAttribute("aria-label", "Tokens; arrow keys read single tokens");
        view.append(...spans);
        box.append(view);
        listen(view, spans, r);
        if (r.values) ready(spans);
      }
      if (r.text !== undefined) {
        if (r.ids) box.append(el("p", "soft", "The whole text, with what the policy did not write:"));
        box.append(el("pre", "model tall", r.text));
      }
    });
    return box;
  }

  function shown(piece) {
    return piece === "" ? "▯" : piece.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥\t");
  }

  function listen(view, spans, r) {
    let here = -1;
    const place = new Map(spans.map((s, i) => [s, i]));
    function read(i) {
      if (here >= 0) spans[here].classList.remove("here");
      here = i;
      tip.hidden = i < 0;
      if (i < 0) return;
      spans[i].classList.add("here");
      const [id, piece] = vocabulary[r.ids[i]];
      const lines = [JSON.stringify(piece), `token ${i + 1} of ${spans.length}` + (id < 0 ? "" : `, id ${id}`)];
      for (const [name, values] of Object.entries(r.values || {})) lines.push(`${name.padEnd(14)} ${num(values[i])}`);
      tip.textContent = lines.join("\n");
      const box = spans[i].getClientRects()[0] || spans[i].getBoundingClientRect(), size = tip.getBoundingClientRect();
      tip.style.left = Math.max(6, Math.min(innerWidth - size.width - 6, box.left)) + "px";
      tip.style.top = (box.bottom + size.height + 10 < innerHeight ? box.bottom + 6 : Math.max(4, box.top - size.height - 6)) + "px";
    }
    view.addEventListener("pointerover", (event) => { if (place.has(event.target)) read(place.get(event.target)); });
    view.addEventListener("pointerleave", () => read(-1));
    view.addEventListener("blur", () => read(-1));
    view.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50 };
      if (event.key === "Escape") read(-1);
      if (!(event.key in moves) || !spans.length) return;
      event.preventDefault();
      const next = Math.max(0, Math.min(spans.length - 1, here + moves[event.key]));
      spans[next].scrollIntoView({ block: "nearest" });
      read(next);
    });
  }

  for (const select of Object.values(pick)) select.addEventListener("change", draw);
  for (const button of table.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      sort.down = sort.by === button.dataset.sort ? !sort.down : false;
      sort.by = button.dataset.sort;
      for (const th of table.querySelectorAll("thead th")) th.setAttribute("aria-sort", "none");
      button.closest("th").setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      draw();
    });
  }
  draw();
})();
