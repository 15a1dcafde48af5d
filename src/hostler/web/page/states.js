// The states of hosts: in the order that hostler.inventory.states has, each with a letter, so that no colour is needed.
// A capital letter: out of service. A small one, or a dot: it serves, or could.

const TABLE = [
  // name, letter, colour, whether it is out of service
  ["failed", "F", "failed", true],
  ["reclaiming", "R", "leaving", true],
  ["deprovisioning", "X", "leaving", true],
  ["draining", "D", "leaving", true],
  ["stopped", "S", "stopped", true],
  ["returning", "B", "coming", true],
  ["joining", "J", "coming", true],
  ["provisioning", "P", "coming", true],
  ["claimed", "C", "coming", true],
  ["unknown", "?", "unknown", true],
  ["held", "H", "held", true],
  ["in service", "·", "calm", false],
  ["provisioned", "p", "calm", false],
  ["discovered", "d", "spare", false],
  ["available", "a", "spare", false],
];

export const STATES = TABLE.map(([name, letter, colour, out], order) => ({ name, letter, colour, out, order }));
const BY_NAME = new Map(STATES.map((state) => [state.name, state]));

export function isState(name) {
  return BY_NAME.has(name);
}

/** A state that a newer operator may have is shown by its name. */
export function stateOf(name) {
  return BY_NAME.get(name) ?? { name, letter: "?", colour: "unknown", out: true, order: STATES.length };
}
