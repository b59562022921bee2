// Fills the page of a sweep.

(function () {
  const sweep = JSON.parse(document.getElementById("report").textContent);
  const points = sweep.points;
  const byRate = sweep.loads_are === "requests_per_second";
  const places = points.map((point) => point.load + (byRate && point.load !== "inf" ? "/s" : ""));
  const across = byRate ? "requests arriving a second" : "requests at once";
  const column = (pick) => points.map(pick);
  document.getElementById("about").textContent = sweep.heading;
  document.getElementById("table").textContent = sweep.table;

  curvePlot("output", "Output tokens per second", places, across, [
    {name: "all runs", color: "blue", values: column((p) => p.output_tokens_per_second)},
    {name: "least run", color: "stone", values: column((p) => p.min_output_tokens_per_second)},
    {name: "most run", color: "green", values: column((p) => p.max_output_tokens_per_second)},
  ], short);
  const limits = Object.values(sweep.limits).some((limit) => limit !== null);
  curvePlot("answers", "Requests per second", places, across, [
    {name: "answered", color: "blue", values: column((p) => p.requests_per_second)},
    ...(limits ? [{name: "within limits", color: "green", values: column((p) => p.good_requests_per_second)}] : []),
  ], short);
  for (const [name, title, key] of [["ttft", "Time to the first token", "ttft_ms"],
    ["tpot", "Time between tokens", "tpot_ms"], ["whole", "Time of a whole request", "end_to_end_ms"]]) {
    curvePlot(name, title, places, across, [
      {name: "P50", color: "blue", values: column((p) => p[key].p50)},
      {name: "P95", color: "amber", values: column((p) => p[key].p95)},
      {name: "P99", color: "violet", values: column((p) => p[key].p99)},
    ], milliseconds);
  }
  if (points.some((point) => point.mfu !== null)) {
    curvePlot("ceilings", "Share of the measured ceilings", places, across, [
      {name: "arithmetic", color: "blue", values: column((p) => p.mfu)},
      {name: "memory", color: "amber", values: column((p) => p.memory_bandwidth_share)},
    ], percent);
  } else {
    document.querySelector('[data-plot="ceilings"]').remove();
  }
  document.documentElement.dataset.ready = "yes";
})();
