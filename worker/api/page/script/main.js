// Tabs, and the begin.

const tabs = [$("tab-chat"), $("tab-write"), $("tab-decide"), $("tab-compare")];
let isChosen = false; // by the reader, not by what the model can do

function choose(chosen) {
  for (const tab of tabs) {
    const isShown = tab === chosen;
    tab.setAttribute("aria-selected", isShown);
    tab.tabIndex = isShown ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !isShown;
  }
  inspect(null);
  showCode();
}

/** Shows the tabs of what the model can do, and opens on Chat if its file has a template. */
function offer(capabilities, chats) {
  const writes = capabilities.includes("text-gen");
  const shown = [writes, writes, writes, capabilities.includes("embedding")];
  tabs.forEach((tab, index) => (tab.hidden = !shown[index]));
  $("sampling").hidden = !writes;
  const chosen = tabs.find((tab) => tab.getAttribute("aria-selected") === "true");
  const first = tabs.find((tab) => !tab.hidden);
  if (chosen.hidden && first) choose(first);
  else if (!isChosen && writes) choose(chats ? $("tab-chat") : $("tab-write"));
}

for (const tab of tabs) {
  tab.addEventListener("click", () => {
    isChosen = true;
    choose(tab);
  });
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const shown = tabs.filter((each) => !each.hidden);
    const next = shown.at((shown.indexOf(tab) + step) % shown.length);
    isChosen = true;
    choose(next);
    next.focus();
  });
}

follow();
