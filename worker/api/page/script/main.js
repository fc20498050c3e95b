// Tabs, and the begin.

const tabs = [$("tab-write"), $("tab-chat"), $("tab-compare")];

function choose(chosen) {
  for (const tab of tabs) {
    const isChosen = tab === chosen;
    tab.setAttribute("aria-selected", isChosen);
    tab.tabIndex = isChosen ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !isChosen;
  }
  inspect(null);
  showCode();
}

/** Shows the tabs of what the model can do; the chosen one stays where it is among them. */
function offer(capabilities) {
  const writes = capabilities.includes("text-gen");
  const shown = [writes, writes, capabilities.includes("embedding")];
  tabs.forEach((tab, index) => (tab.hidden = !shown[index]));
  $("sampling").hidden = !writes;
  const chosen = tabs.find((tab) => tab.getAttribute("aria-selected") === "true");
  const first = tabs.find((tab) => !tab.hidden);
  if (chosen.hidden && first) choose(first);
}

for (const tab of tabs) {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const shown = tabs.filter((each) => !each.hidden);
    const next = shown.at((shown.indexOf(tab) + step) % shown.length);
    choose(next);
    next.focus();
  });
}

follow();
