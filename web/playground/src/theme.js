// Before the first paint, so that a chosen theme does not flash. "system" is what is kept when nothing is.
(() => {
  let theme = "system";
  try {
    theme = localStorage.getItem("snowmint-theme") ?? theme;
  } catch {
    // Storage may be forbidden: the system's theme then.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
