// The answers of the admin port that the page reads. Names are those of the controller; what the page does not show is left
// out.

export type Mode = 'shadow' | 'canary' | 'enforce';
export type Severity = 'info' | 'warning' | 'critical';
export type Role = 'viewer' | 'operator' | 'admin';
/** Seconds since 1970, requests/s that arrived and that were admitted, and the limit. */
export type Point = [number, number, number, number | null];

export interface Hello { name: string; role: Role }

export interface Page<T> { total: number; matching: number; page: number; pages: number; rows: T[] }

export interface Frame {
  fleet: Fleet;
  view: { buckets: Page<BucketRow>; bucket: BucketDetail | null };
}

export interface Fleet {
  at_s: number;
  status: {
    verdict: string;
    summary: string;
    problems: Problem[];
    epoch: number;
    policy_hash: string;
    killed: boolean;
    clients: number;
    aggregators: Aggregator[];
  };
  aggregators_total: number;
  kill: Kill;
  killed_buckets: number;
  in_shadow: number;
  held: { hash: string; since_s: number | null; reasons: string[] } | null;
}

export interface Problem { severity: Severity; subject: string; text: string; remedy: string }

export interface Aggregator {
  zone: string;
  name: string;
  connected: boolean;
  killed_locally: number;
  last_report_s: number;
  stale: boolean;
  expired: boolean;
  name_conflict: boolean;
}

export interface Kill {
  killed: boolean;
  by_file: boolean;
  command: { reason: string | null; by: string | null; since_s: number | null } | null;
}

export interface BucketRow {
  name: string;
  mode: Mode | 'unknown';
  pending_mode: Mode | null;
  gate: string | null;
  killed: boolean;
  limit_rps: number | null;
  offered_rps: number;
  admitted_rps: number;
  would_refuse_rps: number;
  history?: Point[];
}

export interface Refusals {
  span_s: number;
  asked: number;
  cluster_overload: number;
  tenant_limit: number;
  burst_guard: number;
  quota: number;
  quota_repeated: number;
  would_refuse: number;
}

export interface BucketDetail {
  row: BucketRow;
  status: { refusals_10_s: Refusals; released_rps: number; clients_unapplied: number };
  rollout: Rollout | null;
  kill: Kill;
  tenants: Page<TenantRow>;
}

export interface Cohort { offered: number; refused: number; would_dropped: number; instances: number; p99_us: number | null }

export interface Rollout {
  entry: string;
  stage: Mode;
  pending: Mode | null;
  next: Mode | null;
  gate: string | null;
  why: string[];
  auto_promote: boolean;
  evidence: { with_data_ms: number; canary: Cohort; control: Cohort };
  since: { at_s: number | null; cause: string; why: string[] } | null;
}

export interface TenantRow {
  tenant: string;
  offered_rps: number;
  allocated_rps: number;
  law_ratio: number;
  at_tenant_limit: boolean;
  grants: { plan: string | null; weight: number };
}

export interface Why {
  summary: string;
  refused_since_s: number | null;
  limit_rps: number | null;
  limit_source: string;
  allocated_rps: number | null;
  others: { tenant: string; requests: Refusals; weight: number }[];
  remedies: { change: string; refused_before: number; refused_after: number; others: { tenant: string; refused_before: number; refused_after: number }[] }[];
}

export interface FleetEvent { number: number; time_ms: number; severity: Severity; text: string; by?: string; why?: string }

export interface Difference { path: string; from: string | null; to: string | null }

export interface Policies { held: { hash: string; differences: Difference[] } | null }

export interface Shift { bucket: string; tenant: string | null; offered_rps: number; before: number; after: number }

export interface Shifts { largest: Shift[]; more: number }

export interface Forecast { buckets: Shifts; refused_more: Shifts; refused_less: Shifts }

export interface Returning {
  entry: string;
  to: Mode | null;
  refused: string | null;
  offered_rps: number;
  would_refuse: number | null;
}
