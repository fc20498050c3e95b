// The cache, the memory, the speed of the last minutes, the log.

const CHART_S = 600;

function showCache({ cells, kept }) {
  fill($("cells"), share(cells.live, cells.total), share(cells.cached, cells.total));
  say($("cells-live"), `${count(cells.live)} live`);
  say($("cells-cached"), `${count(cells.cached)} cached`);
  say($("cells-free"), `${count(cells.free)} free`);
  const places = [];
  if (kept.memory_limit_bytes) {
    places.push(`Cached in memory: ${bytes(kept.memory_bytes)} of ${bytes(kept.memory_limit_bytes)}`);
  }
  if (kept.disk_limit_bytes) {
    places.push(`on disk: ${bytes(kept.disk_bytes)} of ${bytes(kept.disk_limit_bytes)}`);
  }
  say($("kept"), places.join(", ") || "Nothing is cached outside the KV cache.");
}

/** The plan knows nothing of cached conversations: they come on top. */
function showMemory({ kept, memory }) {
  fill($("memory"), share(memory.resident_bytes, memory.planned_bytes + kept.memory_bytes));
  const parts = [`${bytes(memory.planned_bytes)} planned`];
  if (kept.memory_bytes) parts.push(`${bytes(kept.memory_bytes)} for cached conversations`);
  say($("memory-text"), `${bytes(memory.resident_bytes)} held; ${parts.join(", ")}`);
}

function showSpeeds(speeds, now) {
  const of = (column) => speeds.map((point) => [point[0], point[column]]);
  drawChart($("written-chart"), $("written-speed"), "generated", of(2), now);
  drawChart($("read-chart"), $("read-speed"), "processed", of(1), now);
}

/** A line of tokens a second over the last minutes, and its last and highest value as text. */
function drawChart(svg, caption, verb, points, now) {
  const shown = points.filter(([at]) => at > now - CHART_S);
  const most = Math.max(1, ...shown.map(([, rate]) => rate));
  const line = shown.map(([at, rate]) => {
    const x = 200 * (1 - (now - at) / CHART_S);
    return [x.toFixed(1), (39 - (36 * rate) / most).toFixed(1)];
  });
  const last = shown.at(-1)?.[1] ?? 0;
  const top = Math.max(0, ...shown.map(([, rate]) => rate));
  caption.replaceChildren(el("b", {}, `${speed(last)} tok/s`), ` ${verb}`, el("br"));
  caption.append(`at most ${speed(top)} in ${CHART_S / 60} min`);
  svg.setAttribute("aria-label", `${verb}: ${speed(last)} tokens a second, at most ${speed(top)}`);
  const area = document.createElementNS(SVG, "path");
  const stroke = document.createElementNS(SVG, "polyline");
  if (line.length > 0) {
    const way = line.map((point) => point.join(" ")).join(" L");
    area.setAttribute("d", `M${line[0][0]} 40 L${way} L${line.at(-1)[0]} 40 Z`);
    stroke.setAttribute("points", line.map((point) => point.join(",")).join(" "));
  }
  svg.replaceChildren(area, stroke);
}

let newest = ""; // line of the log that is shown

function showLog(lines) {
  const last = JSON.stringify(lines.at(-1) ?? "") + lines.length;
  if (last === newest) return;
  newest = last;
  const log = $("log");
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 8;
  log.replaceChildren(
    ...lines.map(([at, level, part, event, rest]) => {
      const time = new Date(at).toTimeString().slice(0, 8);
      const text = [part, event, rest].filter(Boolean).join(" ");
      return el("li", { class: level }, el("span", { class: "dim" }, time), " ", text);
    }),
  );
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}
