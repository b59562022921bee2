// Fills the page of `launcher eval`.

(function () {
  const report = JSON.parse(document.getElementById("report").textContent);
  const models = report.models, comparison = report.comparison, gate = report.gate;
  document.getElementById("about").textContent =
    models.map((model) => model.model + " (" + model.dtype + ")").join("  →  ");
  document.getElementById("table").textContent = report.table;
  if (gate) {
    const badge = document.getElementById("outcome");
    badge.textContent = gate.passed ? "passed" : "failed";
    badge.classList.add(gate.passed ? "good" : "bad");
    badge.hidden = false;
  }

  const signed = (share) => (share < 0 ? "−" : "+") + percent(Math.abs(share));
  if (report.text) {
    const scored = short(report.text.scored_tokens) + " tokens in " + report.text.windows + " windows";
    tile("Perplexity", models[0].perplexity.toFixed(2), "", scored);
    if (comparison) {
      const limit = gate ? "at most " + signed(gate.max_perplexity_increase) : "of the second model";
      tile("Perplexity", models[1].perplexity.toFixed(2), signed(comparison.perplexity_increase), limit);
      tile("KL", trim(comparison.kl_second_from_first), "nats", "a token, over " + comparison.kl_over);
      tile("Same likeliest token", percent(comparison.top1_agreement), "", "of positions");
    }
  }
  if (comparison && comparison.greedy) {
    const greedy = comparison.greedy;
    tile("Greedy answers part", trim(greedy.mean_tokens_alike), "of " + greedy.tokens,
      greedy.alike_to_the_end + " of " + greedy.prompts + " never");
  }
  if (report.tasks) {
    const note = report.tasks.tasks + " tasks" +
      (comparison && comparison.choice_agreement !== undefined ? ", same choice in " + percent(comparison.choice_agreement) : "");
    tile("Tasks", models.map((model) => percent(model.acc)).join(" → "), "", note);
  }

  const colors = ["blue", "amber"];
  const nll = (value) => value.toFixed(2);
  if (report.text) {
    const places = models[0].window_nll.map((_, i) => String(i));
    curvePlot("windows", "Mean negative log-likelihood of each window", places, "windows, in the order of the text",
      models.map((model, i) => ({name: i === 0 ? "first" : "second", color: colors[i], values: model.window_nll})), nll);
    if (models.length > 1) {
      const increase = models[0].window_nll.map((value, i) => Math.abs(models[1].window_nll[i] - value));
      curvePlot("increase", "How far the second model's is from the first's", places, "windows",
        [{name: "difference", color: "violet", values: increase}], (value) => value.toPrecision(2));
    } else {
      document.querySelector('[data-plot="increase"]').remove();
    }
  } else {
    document.getElementById("text").remove();
  }
  if (comparison && comparison.layers) {
    curvePlot("layers", "How far the second model's residual stream is from the first's", comparison.layers.map((_, i) => String(i)),
      "after layer", [{name: "distance", color: "violet", values: comparison.layers}], percent);
  } else {
    document.getElementById("layers").remove();
  }
  document.documentElement.dataset.ready = "yes";
})();
