// Draws the figures from the data in this page; on paper, unfolds what is folded and fits the figures to A4.
(() => {
  const { config, figures } = JSON.parse(document.getElementById("figure-data").textContent);
  const PAPER_WIDTH = 660; // pixels at 96 per inch between the margins of A4
  const drawn = [];
  for (const [id, { data, layout }] of Object.entries(figures)) {
    const place = document.getElementById(id);
    Plotly.newPlot(place, data, layout, config);
    drawn.push(place);
  }
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    unfolded.forEach((part) => { part.open = true; });
    drawn.forEach((place) => Plotly.relayout(place, { autosize: false, width: PAPER_WIDTH }));
  });
  addEventListener("afterprint", () => {
    unfolded.forEach((part) => { part.open = false; });
    drawn.forEach((place) => Plotly.relayout(place, { autosize: true, width: null }));
  });
})();
