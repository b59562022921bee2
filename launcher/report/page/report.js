// Fills the page from the report.

(function () {
  const report = JSON.parse(document.getElementById("report").textContent);
  const {job, runs, requests, errors, tokens, steps, latency_ms: latency, goodput, over_time: time} = report;
  const put = (id, text) => { document.getElementById(id).textContent = text; };

  put("name", job.name);
  const outcome = document.getElementById("outcome");
  outcome.textContent = job.outcome;
  outcome.classList.add({"finished": "good", "finished with error lines": "mixed"}[job.outcome] || "bad");
  put("about", [job.model, job.architecture, "began " + job.began.replace("T", " ").replace("Z", " UTC"),
    duration(job.seconds) + ", of these " + duration(job.serving_seconds) + " answering" +
    (runs.length > 1 ? " in " + runs.length + " runs" : "") +
    (job.input_wait_seconds >= 0.1 ? " or waiting for input (" + duration(job.input_wait_seconds) + ")" : "")]
    .join("  ·  "));
  if (job.reason) {
    put("reason", job.reason);
    document.getElementById("reason").hidden = false;
  }

  const seen = tokens.computed_prompt - tokens.recomputed_prompt + tokens.prefix_hits;
  const more = [];
  if (requests.errors > 0) more.push(short(requests.errors) + (requests.errors === 1 ? " error line" : " error lines"));
  if (requests.not_begun > 0) more.push(short(requests.not_begun) + " not begun");
  if (requests.answered_before > 0) more.push(short(requests.answered_before) + " lines by earlier runs");
  tile("Answers", short(requests.answered), "", more.join(", ") || "no error lines");
  tile("Output", short(tokens.generated_per_second), "tok/s", short(tokens.generated) + " tokens");
  tile("Prompts computed", short(tokens.computed_prompt_per_second), "tok/s",
    short(tokens.computed_prompt) + " tokens");
  tile("Prefix cache", percent(seen > 0 ? tokens.prefix_hits / seen : 0), "", "of prompt tokens found");
  for (const [label, of] of [["First token", latency.ttft], ["Between tokens", latency.itl],
    ["Whole answer", latency.e2e]]) {
    const known = of.count > 0;
    tile(label, known ? milliseconds(of.p50) : "–", "", known ? "P99 " + milliseconds(of.p99) : "none was measured");
  }
  tile("KV cache", percent(steps.peak_kv_use), "", "at its fullest");
  tile("Outside the model", steps.share_outside_model === null ? "–" : percent(steps.share_outside_model), "",
    "of the time with requests");
  if (goodput) tile("Goodput", percent(goodput.share), "", short(goodput.answers_per_second) + " answers/s");

  const interval = time.interval_seconds;
  timePlot("throughput", "Output tokens per second", [
    {name: "output", color: "blue", values: time.output_tokens_per_second},
  ], interval, {format: short});
  timePlot("requests", "Requests", [
    {name: "running", color: "blue", values: time.running},
    {name: "waiting", color: "amber", values: time.waiting},
  ], interval, {format: short});
  timePlot("kv", "KV cache in use", [{name: "in use", color: "green", values: time.kv_use}], interval,
    {format: percent, most: Math.max(...time.kv_use, 0) < 0.2 ? undefined : 1});
  timePlot("prefix", "Prompt tokens per second", [
    {name: "found in the prefix cache", color: "violet", values: time.prefix_hits_per_second},
    {name: "computed", color: "amber", values: time.computed_prompt_tokens_per_second},
  ], interval, {format: short});

  distributionPlot("ttft", "Time to the first token", latency.ttft, "blue");
  distributionPlot("itl", "Time between tokens", latency.itl, "green");
  distributionPlot("e2e", "Time to the whole answer", latency.e2e, "violet");

  // Their processes are gone, and with them what they counted of themselves.
  const lastRun = report.last_run_only.length > 0 ? ", in the last run" : "";
  const doing = [["computing", "blue"], ["exchange in its stage", "amber"], ["other stages", "violet"],
    ["waiting for a plan", "stone"], ["other", "line"]];
  // Exchanges of GPUs are not known apart from computing.
  const times = (of) => [of.computing_seconds, of.exchange_seconds ?? 0, of.stage_seconds ?? 0,
    of.waiting_seconds, of.other_seconds];
  stackedBars("ranks", "Each rank's time" + lastRun, doing,
    report.ranks.map((rank) => ({
      label: "rank " + rank.rank,
      note: rank.place,
      parts: times(rank),
    })));
  const experts = document.querySelector('[data-plot="experts"]');
  if (report.experts) {
    heatMap("experts", "Rows of each expert" + lastRun, report.experts.rows);
  } else {
    experts.remove();
  }

  const bytes = (value) => value < 1000 ? value.toFixed(0) + " B" : value < 1e6 ? trim(value / 1e3) + " kB" :
    value < 1e9 ? trim(value / 1e6) + " MB" : trim(value / 1e9) + " GB";
  // "0–3, 8": ranks in ascending order.
  function ranks(numbers) {
    const runs = [];
    for (const n of numbers) {
      const last = runs[runs.length - 1];
      if (last && last[1] === n - 1) last[1] = n; else runs.push([n, n]);
    }
    return runs.map(([a, b]) => a === b ? String(a) : a + "–" + b).join(", ") || "none";
  }
  function fill(id, head, rows) {
    const table = document.getElementById(id);
    const line = (cells, tag) => {
      const row = html("tr");
      cells.forEach((cell, i) => row.append(html(tag, i > 1 ? "number" : "", cell)));
      table.append(row);
    };
    if (head) line(head, "th");
    for (const row of rows) line(row, "td");
  }
  if (report.hosts.length > 0) {
    document.getElementById("hosts").hidden = false;
    stackedBars("hosts", "Each host's time, the mean of its ranks" + lastRun, doing,
      report.hosts.map((host) => ({label: host.host, note: ranks(host.ranks), parts: times(host)})));
    fill("hosts-table", ["Host", "Address", "Ranks", "Sent", "Received"], report.hosts.map((host) =>
      [host.host, host.address, ranks(host.ranks), bytes(host.sent_bytes), bytes(host.received_bytes)]));
    const shown = report.links.slice(0, 32);
    fill("links-table", ["From", "To", "Bytes", "A second", "Before the job", "Time at that rate", "Latency"],
      shown.map((link) => [link.from, link.to, bytes(link.bytes), bytes(link.bytes_per_second) + "/s",
        ...(link.measured_bytes_per_second === null ? ["–", "–", "–"] :
          [bytes(link.measured_bytes_per_second) + "/s", milliseconds(1000 * link.seconds_at_that_rate), milliseconds(link.latency_ms)])]));
  }
  if (goodput) {
    document.getElementById("goodput").hidden = false;
    const limit = (ms) => ms === null ? "any" : milliseconds(ms);
    fill("goodput-table", null, [
      ["First token within", limit(goodput.ttft_ms)],
      ["Between tokens, mean of a request", limit(goodput.itl_ms)],
      ["Whole answer within", limit(goodput.e2e_ms)],
      ["Answers that kept it", short(goodput.good_answers) + " of " + short(latency.e2e.count)],
    ]);
  }
  if (errors.count > 0) {
    document.getElementById("errors").hidden = false;
    const codes = Object.entries(errors.by_code).sort((a, b) => b[1] - a[1]);
    fill("errors-table", ["Code", "Lines"], codes.map(([code, lines]) => [code, lines.toLocaleString("en")]));
    put("first-error", "Line " + errors.first.line + ": " + errors.first.message);
  }
  if (report.recoveries.count > 0) {
    document.getElementById("recoveries").hidden = false;
    fill("recoveries-table", ["Lost", "Seconds to the next step", "Sequences computed anew"],
      report.recoveries.events.map((event) => [
        event.lost.map((down) => down.message).join("; "), event.seconds.toFixed(2), short(event.sequences)]));
  }
  if (report.domain_changes.length > 0) {
    document.getElementById("domain-changes").hidden = false;
    fill("domain-changes-table", ["Step domain", "Change", "Nodes", "Serving then", "After answers"],
      report.domain_changes.map((event) => [
        event.change === "awaited" ? "from " + event.domain : event.domain,
        { back: "serves after " + duration(event.seconds), awaited: "no node at the start",
          answered: "first answer " + event.seconds.toFixed(2) + " s after its node was there",
          dropped: "dropped; " + short(event.requests) + " requests handed over" }[event.change],
        event.nodes.join(", "), event.serving + " of " + event.domains, short(event.answered)]));
  }
  if (runs.length > 1) {
    document.getElementById("runs").hidden = false;
    fill("runs-table", ["Run", "Ended", "Answers", "Time"], runs.map((run) =>
      [run.began.replace("T", " ").replace("Z", " UTC"), run.outcome, short(run.answered), duration(run.seconds)]));
  }
  if (report.precision.kernels.length > 0) {
    document.getElementById("precision").hidden = false;
    fill("precision-table", ["Matrices of layers", "Multiplied as"], [
      ...report.precision.kernels.map((of) =>
        [of.matrices + (of.ranks.length < report.ranks.length ? " (ranks " + ranks(of.ranks) + ")" : ""), of.kernel]),
      ["keys and values", report.precision.kv_cache],
      ...report.precision.fallen_back.map((of) =>
        ["layer " + of.layer + ", from step " + of.step + " on (step domain " + of.domain + ")",
          "activations of full width: " + (of.largest === null ? "some were not finite" : "one was " + trim(of.largest))]),
    ]);
  }
  put("processes-title", "What each process did" + lastRun);
  fill("processes", ["Process", "Doing", "Times", "Seconds"], report.processes.flatMap((process) =>
    Object.entries(process.spans).map(([name, span], i) =>
      [i === 0 ? process.process : "", name.replaceAll("_", " "), span.count.toLocaleString("en"), trim(span.seconds)])));
  fill("job", null, [
    ["Input", job.input], ["Output", job.output], ["Machine", job.host + ", " + job.cores + " cores"],
    ["Steps", short(steps.count) + ", " + trim(steps.mean_model_ms) + " ms each in the model"],
    ["Numbers", [report.precision.dtype, "model.quantization " + report.precision.quantization,
      "keys and values " + report.precision.kv_cache].join(", ")],
    ["Preemptions", short(steps.preemptions)],
    ...(tokens.drafts > 0 ? [["Guessed tokens", short(tokens.accepted_drafts) + " of " + short(tokens.drafts) + " accepted"]] : []),
    ["Version", job.version],
  ]);
  put("config", job.config);
  document.documentElement.dataset.ready = "yes";
  document.documentElement.dataset.scheme =
    window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
})();
