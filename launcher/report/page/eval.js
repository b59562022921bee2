// Fills the page of `launcher eval`.

(function () {
  const report = JSON.parse(document.getElementById("report").textContent);
  const models = report.models;
  document.getElementById("about").textContent = models.map((model) => model.model).join(" against ");
  document.getElementById("table").textContent = report.table;

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
    document.querySelector(".plots").remove();
    document.querySelector("h2").remove();
  }
  document.documentElement.dataset.ready = "yes";
})();
