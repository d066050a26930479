// The page's two views: which of them is shown.

import { startChat } from "/ui/chat.js";
import { byId } from "/ui/common.js";
import { startFleet } from "/ui/fleet.js";

const fleet = startFleet();
startChat();

function show() {
  const view = location.hash === "#fleet" ? "fleet" : "chat";
  for (const name of ["chat", "fleet"]) {
    byId(name).hidden = name !== view;
    const tab = byId(`tab-${name}`);
    if (name === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  fleet.watch(view === "fleet");
}
// The link that skips to the content leaves the view as it is.
addEventListener("hashchange", () => {
  if (location.hash !== "#main") show();
});
show();
