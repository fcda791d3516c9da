'use strict';
// Everything is in the page: #data has the parts (trees, or what a rank sends) with their hops
// [from rank, to rank, step, [links]]; each link of the picture is a <g data-links="...">.
(function () {
  const byId = function (id) { return document.getElementById(id); };

  document.querySelectorAll('.picture').forEach(function (picture) {
    const button = picture.querySelector('.zoom');
    button.addEventListener('click', function () {
      button.textContent = picture.classList.toggle('actual') ? 'fit' : 'actual size';
    });
  });

  const stepper = byId('stepper');
  if (!stepper) return;
  const data = JSON.parse(byId('data').textContent);
  const COLOURS = 8;
  const part = byId('part'), step = byId('step'), shown = byId('shown'), play = byId('play');
  const rows = byId('hops').tBodies[0];
  const links = {}, nodes = {};
  stepper.querySelectorAll('g[data-links]').forEach(function (g) {
    g.dataset.links.split(' ').forEach(function (i) { links[i] = g; });
  });
  stepper.querySelectorAll('g[data-node]').forEach(function (g) { nodes[g.dataset.node] = g; });
  const host = stepper.querySelector('g[data-links]') ? stepper.querySelector('g[data-links]').parentNode : null;
  const firstNode = stepper.querySelector('g[data-node]');
  let timer = null;

  data.parts.forEach(function (p, i) {
    const option = document.createElement('option');
    option.value = i;
    option.textContent = p.name;
    part.appendChild(option);
  });

  function chosen() { return data.parts[Number(part.value)]; }
  function lastStep(p) { return p.hops.reduce(function (m, h) { return Math.max(m, h[2]); }, 1); }
  function rankName(r) { return data.nodes[data.ranks[r]]; }

  function paint() {
    const p = chosen(), now = Number(step.value);
    Object.keys(links).forEach(function (i) { links[i].setAttribute('class', 'faint'); });
    Object.keys(nodes).forEach(function (i) { nodes[i].classList.remove('solid'); });
    nodes[data.ranks[p.root]].classList.add('solid');
    const done = {};
    p.hops.forEach(function (h) {
      if (h[2] > now) return;
      h[3].forEach(function (i) {
        if (done[i]) return;
        done[i] = true;
        links[i].setAttribute('class', 'h' + (Math.min(h[2], COLOURS) - 1));
        host.insertBefore(links[i], firstNode); // over the faint ones
      });
    });
    Array.from(rows.rows).forEach(function (row) {
      const at = Number(row.dataset.step);
      row.className = at === now ? 'now' : at > now ? 'later' : '';
    });
    shown.textContent = now + ' of ' + step.max;
  }

  function cell(row, text) { row.insertCell().textContent = text; }

  function choose() {
    const p = chosen();
    step.max = lastStep(p);
    step.value = step.max;
    rows.textContent = '';
    p.hops.slice().sort(function (a, b) { return a[2] - b[2]; }).forEach(function (h) {
      const row = rows.insertRow();
      const ids = h[3].map(function (i) { return data.nodes[data.links[i][0]]; });
      row.dataset.step = h[2];
      cell(row, h[2]);
      cell(row, h[0] + ' (' + rankName(h[0]) + ')');
      cell(row, h[1] + ' (' + rankName(h[1]) + ')');
      cell(row, ids.slice(1).join(', ') || 'a direct link');
    });
    paint();
  }

  function move(by) {
    part.value = (Number(part.value) + by + data.parts.length) % data.parts.length;
    choose();
  }

  function stop() {
    if (timer) clearInterval(timer);
    timer = null;
    play.textContent = 'play';
  }

  play.addEventListener('click', function () {
    if (timer) { stop(); return; }
    step.value = 1;
    paint();
    play.textContent = 'stop';
    timer = setInterval(function () {
      if (Number(step.value) >= Number(step.max)) { stop(); return; }
      step.value = Number(step.value) + 1;
      paint();
    }, 900);
  });
  byId('previous').addEventListener('click', function () { stop(); move(-1); });
  byId('next').addEventListener('click', function () { stop(); move(1); });
  part.addEventListener('change', function () { stop(); choose(); });
  step.addEventListener('input', function () { stop(); paint(); });
  document.addEventListener('keydown', function (e) {
    if (e.target.tagName === 'SELECT' || e.target.tagName === 'INPUT') return;
    if (e.key === 'ArrowRight') move(1);
    if (e.key === 'ArrowLeft') move(-1);
  });
  const asked = /^#part=(\d+)(?:,(\d+))?$/.exec(location.hash);
  if (asked) part.value = asked[1];
  choose();
  if (asked && asked[2]) { step.value = asked[2]; paint(); }
})();
