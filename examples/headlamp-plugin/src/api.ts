/**
 * The fields that the plugin reads of the JSON document of `ui`.
 *
 * Each interface has the name of its definition in docs/reference/schemas/ui.json. A test compares the names and the types.
 */

/** Which object it is. */
export interface Identity {
  kind: string;
  namespace: string | null;
  name: string;
}

/** What the document is about. */
export interface UiScope {
  restricted: boolean;
  unchecked: number;
}

/** The sums of all objects; `from1hTo24h` begins after the first hour. */
export interface UiTotals {
  dueNow: number;
  within1h: number;
  from1hTo24h: number;
  later: number;
  kept: number;
}

/** The forecast of one kind in one namespace; the counts are in the order of the windows. */
export interface UiForecastRow {
  kind: string;
  namespace: string | null;
  counts: number[];
  nextDueAt: string | null;
}

/** How many objects are due in each window: `now`, 24 windows of an hour, and `later`. */
export interface UiForecast {
  windows: string[];
  rows: UiForecastRow[];
  moreRows: number;
}

/** The finished objects of one kind in one namespace. */
export interface UiPile {
  kind: string;
  namespace: string | null;
  finished: number;
  forever: number;
  oldestFinishedAt: string | null;
}

/** Which namespaces and kinds have the most finished objects. */
export interface UiPiles {
  rows: UiPile[];
  moreRows: number;
}

/** The objects that one reason keeps. */
export interface UiKept {
  reason: string;
  meaning: string;
  count: number;
  examples: Identity[];
}

/** One deletion, as a Kubernetes Event shows it. */
export interface UiDeletion {
  kind: string;
  namespace: string | null;
  name: string;
  deletedAt: string;
  reason: string;
  ttlFrom: string;
}

/** The deletions of the last day of which the Kubernetes Events say something. */
export interface UiDeletions {
  total: number;
  rows: UiDeletion[];
  moreRows: number;
  note: string;
}

/** The breaker. */
export interface UiBreaker {
  open: boolean;
  deletionsInWindow: number | null;
}

/** What prevents every deletion. */
export interface UiObstacle {
  reason: string;
  message: string;
  fix: string;
}

/** The last sweep. */
export interface UiSweep {
  at: string;
  complete: boolean;
  message: string;
}

/** The state of the deleters. */
export interface UiStatus {
  policy: string;
  obstacles: UiObstacle[];
  breaker: UiBreaker;
  stopped: boolean;
  lastSweep: UiSweep | null;
}

/** What could not be read, and why. */
export interface UiProblem {
  about: string;
  problem: string;
}

/** The document. */
export interface UiOverview {
  version: number;
  readAt: string;
  refreshSeconds: number;
  scope: UiScope;
  totals: UiTotals;
  forecast: UiForecast;
  piles: UiPiles;
  kept: UiKept[];
  deletions: UiDeletions;
  status: UiStatus | null;
  problems: UiProblem[];
}
