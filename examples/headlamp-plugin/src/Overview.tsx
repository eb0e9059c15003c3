/** The sections of the page. React shows each text of the cluster as text, never as HTML. */

import { NameValueTable, SectionBox, SimpleTable } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Alert, Typography } from '@mui/material';
import { Identity, UiDeletions, UiForecast, UiKept, UiOverview, UiPiles, UiStatus } from './api';

export default function Overview({ found }: { found: UiOverview }) {
  const { dueNow, within1h, from1hTo24h, later, kept } = found.totals;
  return (
    <>
      {found.problems.map(one => (
        <Alert key={`${one.about} ${one.problem}`} severity="warning">
          {one.about}: {one.problem}
        </Alert>
      ))}
      <Typography>
        Read at {instant(found.readAt)}.{found.scope.restricted && ' Only what the user of the token may list.'}
        {found.scope.unchecked > 0 && ` ${found.scope.unchecked} kinds and namespaces are left out.`}
      </Typography>
      <NameValueTable
        rows={[
          { name: 'Due now', value: String(dueNow) },
          { name: 'Due within 1 hour', value: String(within1h) },
          { name: 'Due in 1 to 24 hours', value: String(from1hTo24h) },
          { name: 'Due later', value: String(later) },
          { name: 'Kept', value: String(kept) },
        ]}
      />
      {found.status ? (
        <Status status={found.status} />
      ) : (
        <Typography>The user of the token may not read the breaker and the last sweep.</Typography>
      )}
      <Forecast forecast={found.forecast} />
      <Piles piles={found.piles} />
      <Kept kept={found.kept} />
      <Deletions deletions={found.deletions} />
    </>
  );
}

function Status({ status }: { status: UiStatus }) {
  const { breaker, lastSweep } = status;
  const recent = breaker.deletionsInWindow ?? 'an unknown number of';
  const sweep = lastSweep
    ? `${instant(lastSweep.at)}, ${lastSweep.complete ? 'complete' : 'incomplete'}: ${lastSweep.message}`
    : 'no Event shows one';
  return (
    <SectionBox title="Deleters">
      {status.obstacles.map(one => (
        <Alert key={one.reason} severity="error">
          {one.reason}: {one.message}. {one.fix}
        </Alert>
      ))}
      <NameValueTable
        rows={[
          { name: 'Breaker', value: `${breaker.open ? 'open' : 'closed'}, ${recent} deletions in its window` },
          { name: 'Stopped by an operator', value: status.stopped ? 'yes' : 'no' },
          { name: 'Last sweep', value: sweep },
          { name: 'Policy', value: status.policy },
        ]}
      />
    </SectionBox>
  );
}

function Forecast({ forecast }: { forecast: UiForecast }) {
  const last = forecast.windows.length - 1;
  const rows = forecast.rows.map(({ counts, nextDueAt, ...one }) => ({
    place: place(one),
    now: counts[0],
    hour: counts[1],
    day: sum(counts.slice(2, last)),
    later: counts[last],
    next: instant(nextDueAt),
  }));
  return (
    <SectionBox title="Due, by namespace and kind">
      <SimpleTable
        data={rows}
        columns={[
          { label: 'Namespace and kind', datum: 'place' },
          { label: 'Now', datum: 'now' },
          { label: 'Within 1 hour', datum: 'hour' },
          { label: '1 to 24 hours', datum: 'day' },
          { label: 'Later', datum: 'later' },
          { label: 'Next', datum: 'next' },
        ]}
      />
      <More rows={forecast.moreRows} />
    </SectionBox>
  );
}

function Piles({ piles }: { piles: UiPiles }) {
  const rows = piles.rows.map(one => ({ ...one, place: place(one), oldest: instant(one.oldestFinishedAt) }));
  return (
    <SectionBox title="Finished, by namespace and kind">
      <SimpleTable
        data={rows}
        columns={[
          { label: 'Namespace and kind', datum: 'place' },
          { label: 'Finished', datum: 'finished' },
          { label: 'Stays', datum: 'forever' },
          { label: 'Oldest', datum: 'oldest' },
        ]}
      />
      <More rows={piles.moreRows} />
    </SectionBox>
  );
}

function Kept({ kept }: { kept: UiKept[] }) {
  const rows = kept.map(one => ({ ...one, such: one.examples.map(object).join(', ') }));
  return (
    <SectionBox title="Kept, by reason">
      <SimpleTable
        data={rows}
        columns={[
          { label: 'Reason', datum: 'reason' },
          { label: 'Meaning', datum: 'meaning' },
          { label: 'Objects', datum: 'count' },
          { label: 'Such as', datum: 'such' },
        ]}
      />
    </SectionBox>
  );
}

function Deletions({ deletions }: { deletions: UiDeletions }) {
  const counted = deletions.total - deletions.rows.length - deletions.moreRows;
  const rows = deletions.rows.map(one => ({ ...one, object: object(one), at: instant(one.deletedAt) }));
  return (
    <SectionBox title={`Deleted, as Events show: ${deletions.total}`}>
      <SimpleTable
        data={rows}
        columns={[
          { label: 'Object', datum: 'object' },
          { label: 'Deleted', datum: 'at' },
          { label: 'Reason', datum: 'reason' },
          { label: 'TTL from', datum: 'ttlFrom' },
        ]}
      />
      <More rows={deletions.moreRows} />
      {counted > 0 && <Typography>{counted} of them are only counted, without a name</Typography>}
      <Typography>{deletions.note}</Typography>
    </SectionBox>
  );
}

function More({ rows }: { rows: number }) {
  return rows > 0 ? <Typography>{rows} more rows</Typography> : null;
}

function place({ namespace, kind }: { namespace: string | null; kind: string }): string {
  return `${namespace ?? '-'} ${kind}`;
}

function object({ kind, namespace, name }: Identity): string {
  return [kind, namespace, name].filter(Boolean).join('/');
}

function instant(at: string | null): string {
  return at ? new Date(at).toLocaleString() : '-';
}

function sum(counts: number[]): number {
  return counts.reduce((total, one) => total + one, 0);
}
