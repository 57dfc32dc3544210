// Draws the page's curves and its table from the embedded data. One global state: which labels are hidden, shared by all
// plots, so that switching "post" off switches it off everywhere. Numbers of log metrics arrive and are drawn as log10;
// only texts turn them back. No request leaves the page.
(function () {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const byId = (id) => document.getElementById(id);
  const unique = (list) => [...new Set(list)];
  const isNum = (v) => typeof v === 'number' && isFinite(v);

  function el(tag, attrs, ...children) {
    const e = document.createElement(tag);
    for (const k in attrs || {}) {
      if (k === 'on') for (const ev in attrs.on) e.addEventListener(ev, attrs.on[ev]);
      else if (attrs[k] !== null && attrs[k] !== undefined) e.setAttribute(k, attrs[k]);
    }
    for (const c of children) e.append(c);
    return e;
  }

  // ---- numbers as text ----------------------------------------------------------------------------------------------

  const superscript = (n) => String(n).replace(/./g, (c) => ({'-': '\u207b', 0: '\u2070', 1: '\u00b9', 2: '\u00b2', 3: '\u00b3',
    4: '\u2074', 5: '\u2075', 6: '\u2076', 7: '\u2077', 8: '\u2078', 9: '\u2079'}[c] || c));

  function plain(v, digits) {
    if (!isNum(v)) return '';
    if (v === 0) return '0';
    const e = Math.floor(Math.log10(Math.abs(v)));
    if (e >= -4 && e < 6) return v.toPrecision(Math.max(digits, e + 1));
    const t = v.toExponential(digits - 1).split('e');
    return t[0] + '\u00d710' + superscript(Number(t[1]));
  }

  function fromLog(v, digits) {
    if (!isNum(v)) return '';
    if (v > -4 && v < 6) return plain(Math.pow(10, v), digits);
    let e = Math.floor(v), m = Math.pow(10, v - e).toPrecision(digits);
    if (Number(m) >= 10) { m = (1).toPrecision(digits); e++; }
    return m + '\u00d710' + superscript(e);
  }

  const say = (v, log, digits) => (log ? fromLog(v, digits || 4) : plain(v, digits || 4));

  // ---- axes -----------------------------------------------------------------------------------------------------------

  function niceStep(span, most) {
    const raw = span / Math.max(1, most), p = Math.pow(10, Math.floor(Math.log10(raw)));
    return p * [1, 2, 5, 10].find((k) => k * p >= raw * 0.999);
  }

  function brief(v) {
    const t = Number(v.toPrecision(6)).toExponential().split('e');
    return v ? t[0] + '\u00d710' + superscript(Number(t[1])) : '0';
  }

  // As many digits as tell v from its neighbours on the axis.
  const apart = (v, step) => Math.max(1, Math.floor(Math.log10(Math.abs(v)) + 1e-9) - Math.floor(Math.log10(step) + 1e-9) + 1);

  function linearTicks(a, b, most, whole) {
    let step = niceStep(b - a, most);
    if (whole) step = Math.max(1, Math.round(step));
    const ticks = [], digits = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9)));
    const tiny = digits > 4 && Math.max(Math.abs(a), Math.abs(b)) < 1e-3; // their zeros would leave no room for digits
    for (let k = Math.ceil(a / step - 1e-9); k * step <= b + 1e-9 * step; k++) {
      const v = k * step;
      const own = v ? apart(v, step) : 1;
      ticks.push({v: v, digits: own, label: Math.abs(v) >= 1e6 ? plain(v, own) : tiny ? brief(v) : v.toFixed(digits)});
    }
    return ticks;
  }

  // Positions are log10. Whole decades where there are enough of them, else 1, 2, 5, else a linear scale's places.
  function decadeTicks(a, b, most) {
    const label = (k) => (k >= -3 && k <= 4 ? String(Number(Math.pow(10, k).toPrecision(1))) : '10' + superscript(k));
    if (b - a >= 2) {
      const step = Math.max(1, [1, 2, 3, 5, 10, 15, 20, 25, 50, 100, 200, 500, 1000].find((s) => (b - a) / s <= most) || 2000);
      const ticks = [], first = Math.ceil(a / step - 1e-9) * step;
      let small = true;
      for (let k = first; k <= b + 1e-9; k += step) small = small && k >= -3 && k <= 4;
      for (let k = first; k <= b + 1e-9; k += step) ticks.push({v: k, label: small ? label(k) : k === 0 ? '1' : '10' + superscript(k)});
      return ticks;
    }
    const ticks = [];
    for (let k = Math.floor(a); k <= b; k++)
      for (const m of b - a > 0.7 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8]) {
        const v = k + Math.log10(m);
        const digits = m === 1.5 ? 2 : 1, near = k > -5 && k < 6;
        const text = near ? plain(Number((m * Math.pow(10, k)).toPrecision(2)), digits).replace(/\.0+$/, '') : fromLog(v, digits);
        if (v >= a - 1e-9 && v <= b + 1e-9) ticks.push({v: v, label: text});
      }
    if (ticks.length >= 3) return ticks;
    const far = a < -4 || b > 6, shift = far ? Math.floor(a) : 0; // no number may be as large as these: their mantissas then
    return linearTicks(Math.pow(10, a - shift), Math.pow(10, b - shift), most, false).filter((t) => t.v > 0).map((t) => {
      const v = Math.log10(t.v) + shift;
      return {v: v, label: far ? fromLog(v, t.digits) : t.label};
    });
  }

  // ---- plots ------------------------------------------------------------------------------------------------------------
  // A plot's input: {x, y (names), log, xlog, series: [{label, x[], m[], sd[], t[], lo[], hi[], refs[]}], file}

  const hidden = new Set();
  const plots = [];
  const labels = [];
  function note(label) { if (!labels.includes(label)) labels.push(label); }
  for (const r of data.runs) note(r.label);
  for (const p of data.panels) for (const s of p.series) note(s.label);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Labels that meet in a plot get different colours as long as there are enough.
  const palette = 12, colorOf = new Map();
  (function () {
    const meet = new Map(labels.map((l) => [l, new Set()]));
    const together = (list) => list.forEach((a) => list.forEach((b) => { if (a !== b) meet.get(a).add(b); }));
    together([...new Set(data.runs.map((r) => r.label))]);
    for (const p of data.panels) together([...new Set(p.series.map((s) => s.label))]);
    labels.forEach((l, i) => {
      const taken = new Set([...meet.get(l)].map((o) => colorOf.get(o)));
      let c = 0;
      while (c < palette && taken.has(c)) c++;
      colorOf.set(l, c < palette ? c : i % palette);
    });
  })();
  const color = (label) => css('--c' + colorOf.get(label));
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const blend = (a, b) => '#' + parts(a).map((v, i) => Math.round(0.45 * v + 0.55 * parts(b)[i]).toString(16).padStart(2, '0')).join('');

  // Linear data over many decades read best as logs, too; then everything is turned into log10 here. Not cosines and
  // shares, which live on a scale of 1: what is small there is rounding.
  function prepare(input) {
    const values = [];
    for (const s of input.series) for (const k of ['m', 't']) for (const v of s[k] || []) if (isNum(v)) values.push(v);
    if (input.log || values.length < 2 || !values.every((v) => v > 0)) return input;
    const most = Math.max(...values);
    if (most < 1.001 || most / Math.min(...values) < 100) return input;
    const lg = (a) => a && a.map((v) => (isNum(v) && v > 0 ? Math.log10(v) : null));
    return Object.assign({}, input, {log: true, series: input.series.map((s) => Object.assign({}, s, {
      m: lg(s.m), t: lg(s.t), lo: lg(s.lo), hi: lg(s.hi), sd: null,
      refs: (s.refs || []).map((r) => ({x: r.x, y: r.y > 0 ? Math.log10(r.y) : null, text: r.text}))}))});
  }

  // dygraphs wants one table: a row per x, a [low, middle, high] triple per column.
  function columnsOf(input) {
    const cols = [];
    for (const s of input.series) {
      const c = color(s.label);
      if (s.m && s.m.some(isNum)) cols.push({s: s, kind: 'm', name: s.label, color: c});
      if (s.t && s.t.some(isNum)) cols.push({s: s, kind: 't', name: s.label + ' theory', color: s.m ? blend(c, css('--ink')) : c});
      if (s.refs && s.refs.length) cols.push({s: s, kind: 'r', name: s.label + ' stated', color: c});
    }
    return cols;
  }

  function rowsOf(input, cols) {
    const at = new Map(), fx = input.xlog ? Math.log2 : (v) => v;
    const row = (x) => { if (!at.has(x)) at.set(x, [fx(x)].concat(cols.map(() => [null, null, null]))); return at.get(x); };
    cols.forEach((c, k) => {
      if (c.kind === 'r') { for (const r of c.s.refs) if (isNum(r.y)) row(r.x)[k + 1] = [r.y, r.y, r.y]; return; }
      c.s.x.forEach((x, i) => {
        const v = c.s[c.kind][i];
        if (!isNum(x) || !isNum(v)) return;
        const band = c.kind === 't' && c.s.lo && c.s.hi && isNum(c.s.lo[i]) && isNum(c.s.hi[i]);
        row(x)[k + 1] = band ? [c.s.lo[i], v, c.s.hi[i]] : [v, v, v];
      });
    });
    const xs = [...at.keys()].sort((a, b) => a - b);
    return {xs: xs, rows: xs.map((x) => at.get(x))};
  }

  function range(input, cols) {
    let lo = Infinity, hi = -Infinity;
    const see = (v) => { if (isNum(v)) { lo = Math.min(lo, v); hi = Math.max(hi, v); } };
    for (const c of cols) {
      if (hidden.has(c.s.label)) continue;
      if (c.kind === 'r') c.s.refs.forEach((r) => see(r.y));
      else (c.s[c.kind] || []).forEach(see);
      if (c.kind === 't') { (c.s.lo || []).forEach(see); (c.s.hi || []).forEach(see); }
    }
    if (!(lo <= hi)) return [0, 1];
    const pad = Math.max((hi - lo) * 0.06, input.log ? 0.02 : Math.abs(hi) * 0.01, 1e-9);
    return [lo - pad, hi + pad];
  }

  // On a log axis the data's own places, thinned so that labels keep apart; the last one stays.
  function xTicks(input) {
    if (!input.xlog) return (a, b, px) => linearTicks(a, b, Math.max(2, px / 60), true);
    const own = unique(input.series.flatMap((s) => s.x)).filter((x) => x > 0).sort((a, b) => a - b);
    return (a, b, px) => {
      const gap = 26 * (b - a) / px, ticks = [];
      for (const x of own.slice().reverse())
        if (!ticks.length || ticks[ticks.length - 1].v - Math.log2(x) >= gap) ticks.push({v: Math.log2(x), label: String(x)});
      return ticks.reverse();
    };
  }

  function ring(g, name, ctx, cx, cy, col, size) {
    ctx.beginPath();
    ctx.lineWidth = 2;
    ctx.strokeStyle = col;
    ctx.arc(cx, cy, size, 0, 2 * Math.PI);
    ctx.stroke();
  }

  // Wide enough for the labels of all of it.
  function yAxis(input, cols) {
    const ticker = (a, b, px) => (input.log ? decadeTicks(a, b, Math.max(2, px / 38)) : linearTicks(a, b, Math.max(2, px / 42), false));
    const longest = Math.max(0, ...ticker(...range(input, cols), 230).map((t) => t.label.length));
    return {axisLabelWidth: Math.max(52, 7 * longest + 4), ticker: ticker};
  }

  function options(plot) {
    const input = plot.input, cols = plot.cols, series = {};
    const many = plot.xs.length > 48;
    for (const c of cols) {
      series[c.name] = {color: c.color, strokeWidth: c.kind === 'm' ? 2 : c.kind === 't' ? 1.5 : 0};
      if (c.kind === 't') Object.assign(series[c.name], {strokePattern: [6, 4], drawPoints: false, fillAlpha: 0.16});
      if (c.kind === 'm') Object.assign(series[c.name], {drawPoints: !many, pointSize: 2.5, fillAlpha: 0});
      if (c.kind === 'r') Object.assign(series[c.name], {drawPoints: true, pointSize: 5, drawPointCallback: ring, drawHighlightPointCallback: ring, fillAlpha: 0});
    }
    const lastX = plot.rows.length ? plot.rows[plot.rows.length - 1][0] : 1, firstX = plot.rows.length ? plot.rows[0][0] : 0;
    const padX = Math.max((lastX - firstX) * 0.02, 1e-6);
    return {
      labels: [input.x].concat(cols.map((c) => c.name)), customBars: true, connectSeparatedPoints: true, series: series,
      visibility: cols.map((c) => !hidden.has(c.s.label)), valueRange: range(input, cols), dateWindow: [firstX - padX, lastX + padX],
      gridLineColor: css('--grid'), axisLineColor: css('--line'), highlightCircleSize: 4, legend: 'never', labelsDiv: plot.sink,
      axes: {
        x: {ticker: xTicks(input), drawGrid: false, pixelsPerLabel: 40, axisLabelWidth: 44},
        y: yAxis(input, cols)
      },
      // Dragging zooms with a mouse; a finger scrolls the page and a tap reads a point.
      interactionModel: {
        mousedown: Dygraph.defaultInteractionModel.mousedown,
        dblclick: (ev, g) => g.updateOptions({dateWindow: [firstX - padX, lastX + padX], valueRange: range(input, cols)}),
        touchend: (ev, g) => {
          const t = ev.changedTouches[0], box = g.graphDiv.getBoundingClientRect();
          pick(plot, g.toDataXCoord(t.clientX - box.left));
        }
      },
      highlightCallback: (ev, x, pts, row) => read(plot, row), unhighlightCallback: () => { plot.readout.textContent = ''; }
    };
  }

  function pick(plot, x) {
    let best = 0;
    plot.rows.forEach((r, i) => { if (Math.abs(r[0] - x) < Math.abs(plot.rows[best][0] - x)) best = i; });
    select(plot, best);
  }
  function select(plot, row) {
    plot.at = Math.max(0, Math.min(plot.rows.length - 1, row));
    plot.g.setSelection(plot.at);
    read(plot, plot.at);
  }

  // What the curves say at one x, in words: measured, theory with its band, stated.
  function read(plot, row) {
    if (row === null || row === undefined || row < 0) return;
    plot.at = row;
    const input = plot.input, x = plot.xs[row], out = plot.readout;
    out.replaceChildren(el('b', null, input.x + ' ' + x));
    for (const s of input.series) {
      if (hidden.has(s.label)) continue;
      const i = s.x.indexOf(x), parts = [];
      if (i >= 0 && s.m && isNum(s.m[i])) parts.push(say(s.m[i], input.log, 3));
      if (i >= 0 && s.t && isNum(s.t[i])) {
        let t = (s.m ? 'theory ' : '') + say(s.t[i], input.log, 3);
        if (s.lo && isNum(s.lo[i])) t += ' [' + say(s.lo[i], input.log, 3) + ', ' + say(s.hi[i], input.log, 3) + ']';
        parts.push(t);
      }
      for (const r of s.refs || []) if (r.x === x && isNum(r.y)) parts.push('stated ' + say(r.y, input.log, 3));
      if (parts.length) out.append('  \u2003' + s.label + ': ' + parts.join(', '));
    }
  }

  function csvOf(input) {
    const q = (s) => '"' + String(s).replace(/"/g, '""') + '"', y = input.log ? 'log10 ' + input.y : input.y;
    const lines = ['series,' + [input.x, y, 'theory', 'band_lo', 'band_hi', 'stated'].map(q).join(',')];
    const n = (v) => (isNum(v) ? String(v) : '');
    for (const s of input.series) {
      s.x.forEach((x, i) => lines.push([q(s.label), n(x), n((s.m || [])[i]), n((s.t || [])[i]), n((s.lo || [])[i]), n((s.hi || [])[i]), ''].join(',')));
      for (const r of s.refs || []) lines.push([q(s.label), n(r.x), '', '', '', '', n(r.y)].join(','));
    }
    return lines.join('\n') + '\n';
  }

  function save(name, text) {
    const a = el('a', {href: URL.createObjectURL(new Blob([text], {type: 'text/csv'})), download: name});
    document.body.append(a);
    a.click();
    a.remove();
    setTimeout(() => URL.revokeObjectURL(a.href), 1000);
  }
  const fileName = (s) => s.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 60) + '.csv';

  function summary(input) {
    return input.y + ' against ' + input.x + '. ' + input.series.map((s) => {
      const v = s.m && s.m.some(isNum) ? s.m : s.t || [], known = v.filter(isNum);
      if (!known.length) return s.label + ': no numbers';
      return s.label + ': from ' + say(known[0], input.log, 3) + ' to ' + say(known[known.length - 1], input.log, 3);
    }).join('; ') + '. Arrow keys read the points.';
  }

  function toggle(label) {
    if (hidden.has(label)) hidden.delete(label); else hidden.add(label);
    for (const p of plots) {
      if (!p.input.series.some((s) => s.label === label)) continue;
      for (const b of p.legend.querySelectorAll('button[data-label]')) b.setAttribute('aria-pressed', String(!hidden.has(b.dataset.label)));
      p.g.updateOptions({visibility: p.cols.map((c) => !hidden.has(c.s.label)), valueRange: range(p.input, p.cols)});
    }
  }

  function buildLegend(plot) {
    const box = el('div', {class: 'legend', role: 'group', 'aria-label': 'Curves shown'});
    for (const s of plot.input.series) {
      const swatch = el('span', {class: 'swatch'});
      swatch.style.color = color(s.label);
      box.append(el('button', {type: 'button', 'data-label': s.label, 'aria-pressed': String(!hidden.has(s.label)), on: {click: () => toggle(s.label)}}, swatch, s.label));
    }
    box.append(el('button', {type: 'button', class: 'csv', on: {click: () => save(fileName(plot.input.file), csvOf(plot.input))}}, 'Download CSV'));
    return box;
  }

  function onKey(plot, ev) {
    const step = {ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9}[ev.key];
    if (step === undefined) return;
    ev.preventDefault();
    select(plot, (plot.at === null ? (step > 0 ? -1 : plot.rows.length) : plot.at) + step);
  }

  // Fills `host` (a .plot) and returns the plot. Called again with new input it starts afresh.
  function draw(host, raw) {
    const old = plots.findIndex((p) => p.host === host);
    if (old >= 0) { plots[old].g.destroy(); plots.splice(old, 1); }
    const plot = {host: host, raw: raw, input: prepare(raw), at: null, sink: el('div')};
    plot.cols = columnsOf(plot.input);
    Object.assign(plot, rowsOf(plot.input, plot.cols));
    plot.readout = el('p', {class: 'readout', 'aria-live': 'polite'});
    plot.legend = buildLegend(plot);
    const chart = el('div', {class: 'chart', tabindex: '0', role: 'img', 'aria-label': summary(plot.input), on: {keydown: (ev) => onKey(plot, ev)}});
    const yName = [raw.titled ? '' : plot.input.y, plot.input.log ? '(log scale)' : ''].filter(Boolean).join(' ');
    host.replaceChildren(el('p', {class: 'y-name'}, yName), chart,
      el('p', {class: 'x-name'}, plot.input.x), plot.legend, plot.readout);
    plots.push(plot);
    if (!plot.rows.length) { chart.textContent = 'No numbers to draw.'; plot.g = {destroy() {}, updateOptions() {}, setSelection() {}, resize() {}}; return plot; }
    plot.g = new Dygraph(chart, plot.rows, options(plot));
    return plot;
  }

  // ---- heat maps ---------------------------------------------------------------------------------------------------------
  // A map's input: {title, label, x, y, z (names), log, columns[], rows[] (the first lowest), values[] row by row}. All maps
  // of one title share the scale of colours, so that runs can be compared by eye.

  const heats = [];
  const heatStops = ['#1b1f52', '#2a4f8f', '#28808f', '#3fab74', '#a3ca4a', '#f7e35a'].map(parts);
  function heatColor(share) {
    const at = Math.min(1, Math.max(0, share)) * (heatStops.length - 1), i = Math.min(heatStops.length - 2, Math.floor(at));
    return 'rgb(' + heatStops[i].map((v, k) => Math.round(v + (at - i) * (heatStops[i + 1][k] - v))).join(',') + ')';
  }

  function heatRange(title) {
    let lo = Infinity, hi = -Infinity;
    for (const m of data.heatmaps) if (m.title === title) for (const v of m.values) if (isNum(v)) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
    if (!(lo <= hi)) return [0, 1];
    const log = data.heatmaps.some((m) => m.title === title && m.log), least = log ? Math.log10(2) : 0.1;
    return hi - lo >= least ? [lo, hi] : [(lo + hi - least) / 2, (lo + hi + least) / 2]; // what hardly changes looks even
  }

  // Edges of the columns: half way between neighbours, the outer ones as wide as on their inner side.
  function heatEdges(x) {
    if (x.length === 1) return [x[0] - 0.5, x[0] + 0.5];
    const mid = x.slice(1).map((v, i) => (v + x[i]) / 2);
    return [2 * x[0] - mid[0]].concat(mid, [2 * x[x.length - 1] - mid[mid.length - 1]]);
  }

  const rowLabel = (name) => name.replace(/^layers\./, '').replace('.layers.', ' ');

  function heatBar(h, c, box) {
    const x = box.right + 12, ticks = h.map.log ? decadeTicks(h.range[0], h.range[1], 5) : linearTicks(h.range[0], h.range[1], 5, false);
    for (let y = 0; y < box.height; y++) {
      c.fillStyle = heatColor(1 - y / (box.height - 1));
      c.fillRect(x, box.top + y, 10, 1.5);
    }
    c.fillStyle = css('--muted');
    c.textAlign = 'left';
    for (const t of ticks) c.fillText(t.label, x + 14, box.top + box.height * (1 - (t.v - h.range[0]) / (h.range[1] - h.range[0])));
  }

  function heatAxes(h, c, box) {
    const m = h.map, e = h.edges, step = Math.max(1, Math.ceil(m.rows.length * 14 / box.height));
    c.fillStyle = css('--muted');
    c.textAlign = 'right';
    for (let r = 0; r < m.rows.length; r += step) c.fillText(rowLabel(m.rows[r]), box.left - 6, box.bottom - (r + 0.5) * box.height / m.rows.length);
    c.textAlign = 'center';
    for (const t of linearTicks(m.columns[0], m.columns[m.columns.length - 1], Math.max(2, box.width / 70), true))
      c.fillText(t.label, box.left + box.width * (t.v - e[0]) / (e[e.length - 1] - e[0]), box.bottom + 12);
  }

  function heatDraw(h) {
    const m = h.map, wide = Math.max(200, h.width || h.canvas.parentNode.clientWidth), tall = 200, ratio = devicePixelRatio || 1;
    h.canvas.width = Math.round(wide * ratio);
    h.canvas.height = Math.round(tall * ratio);
    h.canvas.style.width = wide + 'px';
    h.canvas.style.height = tall + 'px';
    const c = h.canvas.getContext('2d'), e = h.edges;
    const left = 12 + 6.5 * Math.max(...m.rows.map((r) => rowLabel(r).length)), box = {left: left, right: wide - 70, top: 8, bottom: tall - 22};
    box.width = box.right - box.left;
    box.height = box.bottom - box.top;
    h.box = box;
    c.scale(ratio, ratio);
    c.font = '12px ' + css('--sans');
    c.textBaseline = 'middle';
    const px = (v) => box.left + box.width * (v - e[0]) / (e[e.length - 1] - e[0]), high = box.height / m.rows.length;
    m.values.forEach((v, i) => {
      if (!isNum(v)) return;
      const r = Math.floor(i / m.columns.length), k = i % m.columns.length, x = px(e[k]);
      c.fillStyle = heatColor((v - h.range[0]) / (h.range[1] - h.range[0]));
      c.fillRect(x, box.bottom - (r + 1) * high, px(e[k + 1]) - x + 0.5, high + 0.5);
    });
    c.strokeStyle = css('--line');
    c.strokeRect(box.left, box.top, box.width, box.height);
    heatBar(h, c, box);
    heatAxes(h, c, box);
    if (!h.at) return;
    c.strokeStyle = css('--ink');
    c.lineWidth = 2;
    c.strokeRect(px(e[h.at[1]]), box.bottom - (h.at[0] + 1) * high, px(e[h.at[1] + 1]) - px(e[h.at[1]]), high);
  }

  function heatSelect(h, row, column) {
    const m = h.map;
    h.at = [Math.max(0, Math.min(m.rows.length - 1, row)), Math.max(0, Math.min(m.columns.length - 1, column))];
    const v = m.values[h.at[0] * m.columns.length + h.at[1]];
    heatDraw(h);
    h.readout.replaceChildren(el('b', null, m.x + ' ' + m.columns[h.at[1]] + ', ' + m.rows[h.at[0]]), ': ' + (isNum(v) ? say(v, m.log, 3) : 'not known'));
  }

  function heatPoint(h, ev) {
    const r = h.canvas.getBoundingClientRect(), b = h.box, e = h.edges, x = e[0] + (e[e.length - 1] - e[0]) * (ev.clientX - r.left - b.left) / b.width;
    if (x < e[0] || x > e[e.length - 1]) return;
    let k = 0;
    while (k + 1 < h.map.columns.length && e[k + 1] < x) k++;
    heatSelect(h, Math.floor((b.bottom - (ev.clientY - r.top)) / b.height * h.map.rows.length), k);
  }

  function heatKey(h, ev) {
    const move = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 0], ArrowDown: [-1, 0]}[ev.key];
    if (!move) return;
    ev.preventDefault();
    if (h.at) heatSelect(h, h.at[0] + move[0], h.at[1] + move[1]); else heatSelect(h, 0, 0);
  }

  function heatCsv(m) {
    const q = (s) => '"' + String(s).replace(/"/g, '""') + '"';
    const lines = [[m.y].concat(m.columns.map((x) => m.x + ' ' + x)).map(q).join(',')];
    m.rows.forEach((r, i) => lines.push([q(r)].concat(m.columns.map((x, k) => { const v = m.values[i * m.columns.length + k]; return isNum(v) ? String(v) : ''; })).join(',')));
    return lines.join('\n') + '\n';
  }

  function heatStart(host, m) {
    const known = m.values.filter(isNum), h = {map: m, range: heatRange(m.title), edges: heatEdges(m.columns), at: null};
    h.canvas = el('canvas', {class: 'heat', tabindex: '0', role: 'img', 'aria-label': m.label + ': ' + m.z + ' by ' + m.y + ' and ' + m.x + (known.length
      ? ', from ' + say(known.reduce((a, b) => Math.min(a, b)), m.log, 3) + ' to ' + say(known.reduce((a, b) => Math.max(a, b)), m.log, 3) : '') + '. Arrow keys read the cells.',
    on: {mousemove: (ev) => heatPoint(h, ev), click: (ev) => heatPoint(h, ev), mouseleave: () => { h.at = null; h.readout.textContent = ''; heatDraw(h); }, keydown: (ev) => heatKey(h, ev)}});
    h.readout = el('p', {class: 'readout', 'aria-live': 'polite'});
    const csv = el('button', {type: 'button', class: 'csv', on: {click: () => save(fileName(m.title + ' ' + m.label), heatCsv(m))}}, 'Download CSV');
    host.replaceChildren(el('p', {class: 'y-name'}, m.y + '; colours: ' + m.z + (m.log ? ' (log scale)' : '')), el('div', {class: 'heat-box'}, h.canvas),
      el('p', {class: 'x-name'}, m.x), el('div', {class: 'legend'}, csv), h.readout);
    heats.push(h);
    heatDraw(h);
  }

  // ---- the key ---------------------------------------------------------------------------------------------------------

  function fillKeys() {
    const line = (pattern) => '<svg width="26" height="10" aria-hidden="true"><line x1="1" y1="5" x2="25" y2="5" stroke="currentColor" stroke-width="2" ' + pattern + '/></svg>';
    const entries = [['measured', line('')], ['theory', line('stroke-dasharray="6 4"')],
      ['band of the theory', '<svg width="26" height="10" aria-hidden="true"><rect width="26" height="10" fill="currentColor" opacity=".22"/></svg>'],
      ['value stated elsewhere', '<svg width="14" height="12" aria-hidden="true"><circle cx="7" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="2"/></svg>']];
    for (const key of document.querySelectorAll('[data-key]')) {
      const panels = key.closest('#panels'), any = (what) => panels && data.panels.some((p) => p.series.some((s) => s[what] && s[what].length));
      const theory = panels ? any('t') : data.runs.some((r) => Object.values(r.values.metrics).some((m) => m.t));
      for (const p of any('refs') ? entries : theory ? entries.slice(0, 3) : []) {
        const s = el('span');
        s.innerHTML = p[1];
        s.append(p[0]);
        key.append(s);
      }
      key.append(el('span', {class: 'hint'}, 'Point at a plot, or focus it and use the arrow keys, to read values. Drag to zoom, double-click to reset.'));
    }
  }

  // ---- the sections with choices -----------------------------------------------------------------------------------------------

  const metricNames = {q: 'mean square', rms: 'root mean square', mean: 'mean', var: 'variance over features', bvar: 'variance over the batch',
    cos: 'cosine between examples', pearson: 'centred cosine between examples', tokcos: 'cosine between tokens', tokpearson: 'centred cosine between tokens', adjcos: 'cosine with the previous layer',
    cos0: 'cosine with the input', write: 'branch norm over stream norm', absmax: 'largest absolute value', kurt: 'kurtosis', rank: 'effective rank',
    entropy: 'attention entropy', maxlogit: 'largest score', gq: 'mean square of the gradient', grms: 'RMS of the gradient', gtok: 'token-mean gradient',
    gdev: 'token-deviation gradient', wgrms: 'RMS of the weight gradient', wrms: 'RMS of the weights', growth: 'growth of q per layer', gratio: 'gradient, in.x over last layer'};
  const metricLabel = (m) => (metricNames[m] ? metricNames[m] + ' (' + m + ')' : m);

  // "layers.3.F.in" -> "layers.*.F.in"; the stream entering layer 0 counts as its layer-0 point.
  const family = (name) => (/(^|\.)in\.x$/.test(name) ? name.replace(/in\.x$/, 'layers.*.x') : name.replace(/(^|\.)layers\.\d+\./, '$1layers.*.'));
  const familyLabel = (f) => (f === 'layers.*.x' ? 'stream' : f.replace('layers.*.', ''));
  const place = (run, i) => (/(^|\.)in\.x$/.test(run.values.names[i]) ? 0 : run.values.layers[i] + 1);

  function selectBox(text, values, names, value, change) {
    const s = el('select', {on: {change: () => change(s.value)}});
    values.forEach((v, i) => s.append(el('option', {value: String(v)}, names[i])));
    s.value = String(value);
    return el('label', null, text, s);
  }

  const hasNumber = (m, i) => ['m', 't'].some((k) => m[k] && isNum(m[k][i]));
  const quantities = ['m', 'sd', 't', 'lo', 'hi'];

  // Up to four plots, each with a choice of metric and value. `src` says what there is to choose from: metrics(),
  // families(metric), points(slot) -> series, title(family), log(metric), and the axis.
  function figures(host, src, wanted) {
    const slots = [];
    function update(slot, focus) {
      const metrics = src.metrics(), fams = src.families(slot.metric);
      if (!fams.includes(slot.family)) { // where most curves are, the stream before others
        const curves = (f) => src.points({metric: slot.metric, family: f}).length, most = Math.max(...fams.map(curves));
        slot.family = fams.includes(src.first) && curves(src.first) === most ? src.first : fams.find((f) => curves(f) === most);
      }
      slot.controls.replaceChildren(selectBox('Metric', metrics, metrics.map(metricLabel), slot.metric, (v) => { slot.metric = v; update(slot, 0); }));
      if (fams.length > 1) slot.controls.append(selectBox('of', fams, fams.map(src.title), slot.family, (v) => { slot.family = v; update(slot, 1); }));
      const box = slot.controls.querySelectorAll('select')[focus];
      if (box) box.focus({preventScroll: true});
      const of = src.title(slot.family);
      slot.title.textContent = metricLabel(slot.metric).replace(/^./, (c) => c.toUpperCase()) + ', ' + of;
      draw(slot.plot, {x: src.x, y: metricLabel(slot.metric), titled: true, log: src.log(slot.metric), xlog: src.xlog, file: slot.metric + ' ' + of + ' ' + src.x, series: src.points(slot)});
    }
    for (const metric of src.metrics()) wanted.push([metric, null]); // the rest only fills up
    for (const w of wanted) {
      const fams = src.families(w[0]);
      if (slots.length === 4 || slots.some((s) => s.metric === w[0]) || !fams.length || (w[1] && !fams.includes(w[1]))) continue;
      const slot = {metric: w[0], family: w[1], title: el('h3'), controls: el('div', {class: 'controls'}), plot: el('div', {class: 'plot'})};
      host.append(el('figure', {class: 'panel'}, slot.title, slot.controls, slot.plot));
      slots.push(slot);
    }
    slots.forEach((s) => update(s, -1));
    return () => slots.forEach((s) => update(s, -1));
  }
  const anyLog = (runs, metric, part) => runs.some((r) => ((r[part] || r.values).metrics[metric] || {}).log);

  // ---- against layer

  function layerFigures(runs) {
    const depths = unique(runs.map((r) => r.depth)).sort((a, b) => a - b);
    let depth = depths[depths.length - 1];
    const atDepth = () => (depths.length > 1 ? runs.filter((r) => r.depth === depth) : runs);
    function points(run, slot) {
      const m = run.values.metrics[slot.metric], s = {label: run.label, x: []};
      if (!m) return null;
      const keys = quantities.filter((k) => m[k]);
      keys.forEach((k) => { s[k] = []; });
      run.values.names.forEach((name, i) => {
        if (family(name) !== slot.family || !hasNumber(m, i)) return;
        s.x.push(place(run, i));
        keys.forEach((k) => s[k].push(m[k][i]));
      });
      return s.x.length ? s : null;
    }
    const src = {
      x: 'layer', xlog: false, first: 'layers.*.x', title: familyLabel,
      metrics: () => unique(atDepth().flatMap((r) => Object.keys(r.values.metrics))),
      families: (metric) => unique(atDepth().flatMap((r) => {
        const m = r.values.metrics[metric] || {};
        return r.values.names.filter((n, i) => r.values.layers[i] >= 0 && hasNumber(m, i)).map(family);
      })),
      points: (slot) => atDepth().map((r) => points(r, slot)).filter(Boolean), log: (metric) => anyLog(runs, metric)
    };
    const layersSeen = (r) => unique(r.values.layers.filter((l) => l >= 0)).length;
    if (!runs.some((r) => layersSeen(r) > 2)) { // a depth sweep keeps the ends only
      document.querySelector('#layers [data-key]').remove();
      document.querySelector('#layers > h3').remove();
      byId('h-layers').textContent = 'Every number';
      return;
    }
    const again = figures(byId('layer-figures'), src, [['q', 'layers.*.x'], ['gq', 'layers.*.x'], ['tokcos', 'layers.*.x'], ['cos', 'layers.*.x'], ['write', null], ['bvar', 'layers.*.x']]);
    if (depths.length > 1) byId('layer-controls').append(selectBox('Depth', depths, depths.map(String), depth, (v) => { depth = Number(v); again(); }));
  }

  // ---- against depth

  const netValues = {last: 'last layer\u2019s stream', 'in.x': 'in.x', 'out.x': 'out.x', net: 'the whole net'};
  // Where in a run the value of this family stands: [part, index], index -1 when it has none.
  function find(run, fam) {
    if (fam === 'net') return [run.summary, 0];
    const names = run.values.names;
    if (fam !== 'last') return [run.values, names.indexOf(fam)];
    let best = -1;
    names.forEach((n, i) => { if (/(^|\.)layers\.\d+\.x$/.test(n) && (best < 0 || run.values.layers[i] >= run.values.layers[best])) best = i; });
    return [run.values, best];
  }
  function depthFigures(runs) {
    const host = byId('depth-figures');
    if (!host) return;
    const depths = unique(runs.map((r) => r.depth)).sort((a, b) => a - b), names = unique(runs.map((r) => r.label));
    const known = (r, fam, metric) => { const f = find(r, fam), m = f[0].metrics[metric]; return m && f[1] >= 0 && hasNumber(m, f[1]); };
    function points(label, slot) {
      const s = {label: label, x: []};
      quantities.forEach((k) => { s[k] = []; });
      for (const r of runs.filter((o) => o.label === label && known(o, slot.family, slot.metric)).sort((p, q) => p.depth - q.depth)) {
        const f = find(r, slot.family), m = f[0].metrics[slot.metric];
        s.x.push(r.depth);
        quantities.forEach((k) => s[k].push(m[k] ? m[k][f[1]] : null));
      }
      if (!s.m.some(isNum)) delete s.m;
      return s.x.length ? s : null;
    }
    figures(host, {
      x: 'depth', xlog: depths.length > 2 && depths[0] > 0 && depths[depths.length - 1] / depths[0] >= 8, first: 'last', title: (f) => netValues[f],
      metrics: () => unique(runs.flatMap((r) => Object.keys(r.values.metrics).concat(Object.keys(r.summary.metrics)))),
      families: (metric) => Object.keys(netValues).filter((f) => runs.some((r) => known(r, f, metric))),
      points: (slot) => names.map((n) => points(n, slot)).filter(Boolean), log: (metric) => anyLog(runs, metric) || anyLog(runs, metric, 'summary')
    }, [['q', 'last'], ['gq', 'in.x'], ['cos', 'last'], ['gratio', 'net'], ['growth', 'net'], ['bvar', 'last']]);
  }

  // ---- the table -------------------------------------------------------------------------------------------------------

  function tableSection(runs) {
    const name = (r) => r.label + (runs.filter((o) => o.label === r.label).length > 1 ? ', depth ' + r.depth : '');
    const state = {run: 0, kind: 'values', metric: 'q', only: 'all', sort: 'order', down: false};
    const source = () => runs[state.run][state.kind];
    const columns = [['order', 'value', ''], ['m', 'measured', 'num'], ['sd', 'sd', 'num col-sd'], ['t', 'theory', 'num'], ['lo', 'band', 'num col-band'], ['z', 'z', 'num']];

    function rows() {
      const src = source(), m = src.metrics[state.metric] || {};
      const lost = new Set(m.lost || []);
      let list = src.names.map((n, i) => {
        const at = (k) => (m[k] ? m[k][i] : null);
        const r = {order: i, name: n, m: at('m'), sd: at('sd'), t: at('t'), lo: at('lo'), hi: at('hi'), z: at('z'), lost: lost.has(i)};
        r.outside = r.lost || (isNum(r.m) && isNum(r.lo) && (r.m < r.lo || r.m > r.hi));
        return r;
      }).filter((r) => isNum(r.m) || isNum(r.t) || r.lost);
      if (state.only === 'outside') list = list.filter((r) => r.outside);
      if (state.only === 'stream') list = list.filter((r) => /(^|\.)(in|out|layers\.\d+)\.x$/.test(r.name));
      const key = (r) => (state.sort === 'z' ? (isNum(r.z) ? Math.abs(r.z) : r.lost ? Infinity : null) : r[state.sort]);
      list.sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === null || y === null || x === undefined || y === undefined) return (x === null || x === undefined) - (y === null || y === undefined);
        return (state.down ? y - x : x - y) || a.order - b.order;
      });
      return list;
    }

    // The sd over seeds; of a log metric in percent, or as a factor once that reads better.
    function spread(sd, log) {
      if (!isNum(sd)) return '';
      if (!log) return plain(sd, 2);
      const percent = 100 * (Math.pow(10, sd) - 1);
      if (percent > 0 && percent < 0.01) return '< 0.01 %';
      return sd < 0.1 ? plain(percent, 2) + ' %' : '\u00d7\u00f7 ' + plain(Math.pow(10, sd), 2);
    }

    const signed = (z) => (Math.abs(z) < 0.05 ? '0.0' : (z > 0 ? '+' : '\u2212') + (Math.abs(z) < 1e4 ? Math.abs(z).toFixed(1) : plain(Math.abs(z), 2)));

    function body(list, log) {
      const out = el('tbody');
      for (const r of list) {
        const far = isNum(r.z) ? (Math.abs(r.z) > 3 ? ' far' : Math.abs(r.z) > 2 ? ' near' : '') : '';
        const tr = el('tr', r.outside ? {class: 'outside', title: 'outside its band'} : null, el('td', {class: 'name'}, r.name),
          r.lost ? el('td', {class: 'num lost'}, 'not finite') : el('td', {class: 'num'}, say(r.m, log)),
          el('td', {class: 'num col-sd'}, spread(r.sd, log)), el('td', {class: 'num'}, say(r.t, log)),
          el('td', {class: 'num col-band'}, isNum(r.lo) ? say(r.lo, log, 3) + ' \u2013 ' + say(r.hi, log, 3) : ''),
          el('td', {class: 'num z' + far}, isNum(r.z) ? signed(r.z) : ''));
        out.append(tr);
      }
      return out;
    }

    function header(focus) {
      const tr = el('tr');
      for (const c of columns) {
        const sorted = state.sort === c[0];
        const b = el('button', {type: 'button', on: {click: () => {
          state.down = state.sort === c[0] ? !state.down : c[0] === 'z';
          state.sort = c[0];
          update(c[0]);
        }}}, c[1]);
        tr.append(el('th', {scope: 'col', class: c[2] || null, 'aria-sort': sorted ? (state.down ? 'descending' : 'ascending') : 'none'}, b));
        if (focus === c[0]) setTimeout(() => b.focus({preventScroll: true}), 0);
      }
      return el('thead', null, tr);
    }

    function update(focus) {
      const kinds = ['values', 'params'].filter((k) => runs[state.run][k].names.length);
      if (!kinds.includes(state.kind)) state.kind = kinds[0];
      const metrics = Object.keys(source().metrics);
      if (!metrics.includes(state.metric)) state.metric = metrics[0];
      const controls = byId('table-controls');
      controls.replaceChildren();
      const again = (k, num) => (v) => { state[k] = num ? Number(v) : v; update(); };
      if (runs.length > 1) controls.append(selectBox('Run', runs.map((r, i) => i), runs.map(name), state.run, again('run', true)));
      if (kinds.length > 1) controls.append(selectBox('Of', kinds, kinds.map((k) => (k === 'values' ? 'values and their gradients' : 'parameters')), state.kind, again('kind')));
      controls.append(selectBox('Metric', metrics, metrics.map(metricLabel), state.metric, again('metric')),
        selectBox('Show', ['all', 'stream', 'outside'], ['all', 'the stream only', 'outside the band only'], state.only, again('only')));
      const list = rows(), log = (source().metrics[state.metric] || {}).log, out = list.filter((r) => r.outside).length;
      const banded = list.filter((r) => isNum(r.lo)).length;
      byId('table-count').textContent = list.length + ' values' + (banded ? '; ' + out + ' of ' + banded + ' outside their band' : '') + '.';
      const table = el('table', {class: 'data'}, header(focus), body(list, log));
      for (const c of columns.slice(1)) {
        if (list.some((r) => isNum(r[c[0]]) || (c[0] === 'm' && r.lost))) continue;
        const k = columns.indexOf(c) + 1;
        for (const cell of table.querySelectorAll('tr > :nth-child(' + k + ')')) cell.hidden = true;
      }
      byId('layer-table').replaceChildren(table);
    }
    update();
  }

  // ---- theme, print ----------------------------------------------------------------------------------------------------

  function redraw() {
    for (const p of plots.slice()) draw(p.host, p.raw);
    heats.forEach(heatDraw);
  }
  const dark = () => matchMedia('(prefers-color-scheme: dark)');
  function isDark() {
    const set = document.documentElement.dataset.theme;
    return set ? set === 'dark' : dark().matches;
  }
  function setTheme(t) {
    if (t) document.documentElement.dataset.theme = t; else delete document.documentElement.dataset.theme;
    byId('theme').textContent = isDark() ? 'Light' : 'Dark';
    redraw();
  }
  byId('theme').addEventListener('click', () => setTheme(isDark() ? 'light' : 'dark'));
  dark().addEventListener('change', () => { if (!document.documentElement.dataset.theme) setTheme(null); });
  let before = null;
  addEventListener('beforeprint', () => {
    before = document.documentElement.dataset.theme || '';
    setTheme('light');
    for (const h of heats) { h.width = 320; heatDraw(h); }
    for (const p of plots) p.g.resize(Math.min(p.host.clientWidth, 340), 210);
  });
  addEventListener('resize', () => heats.forEach(heatDraw));
  addEventListener('afterprint', () => { for (const h of heats) h.width = 0; if (before !== null) setTheme(before || null); before = null; });

  fillKeys();
  data.panels.forEach((p, i) => {
    const host = document.querySelector('[data-panel="' + i + '"] .plot');
    if (host) draw(host, Object.assign({file: p.title}, p));
  });
  data.heatmaps.forEach((m, i) => {
    const host = document.querySelector('[data-heatmap="' + i + '"] .plot');
    if (host) heatStart(host, m);
  });
  const measured = data.runs.filter((r) => r.values.names.length);
  depthFigures(measured);
  if (byId('layer-figures') && measured.length) {
    layerFigures(measured);
    tableSection(measured);
  }
  byId('theme').textContent = isDark() ? 'Light' : 'Dark';
})();
