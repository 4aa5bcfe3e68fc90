(function () {
  try {
    const kept = localStorage.getItem("rlvr-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch (error) {
    // storage may be forbidden for local files: the system's choice stays
  }
})();
