-- What records say that no column held: since when a subscription stands and when it ended, when entries were recorded; the
-- order in which the feed of receipts is read; and grants of URIs longer than an index entry.

alter table fenceline.subscription
  add column started_at timestamptz not null default fenceline.now(),  -- of its generation
  add column ended_at timestamptz;                                     -- closed; null while it is not
update fenceline.subscription s
set started_at = coalesce(t.first_at, s.started_at), ended_at = case when s.lifecycle = 'CLOSED' then coalesce(t.last_at, s.started_at) end
from (select subscription_id, min(at) as first_at, max(at) filter (where kind = 'closed') as last_at
      from fenceline.receipt where subscription_id is not null group by subscription_id) t
where t.subscription_id = s.subscription_id;

-- Only transitions call anything (the columns and the condition are those of subscription_transition).
create function fenceline.note_subscription_times() returns trigger language plpgsql volatile as $$
begin
  if new.generation <> old.generation then new.started_at := fenceline.now(); end if;
  new.ended_at := case when new.lifecycle <> 'CLOSED' then null when old.lifecycle = 'CLOSED' then old.ended_at else fenceline.now() end;
  return new;
end $$;
create trigger subscription_times before update of lifecycle, generation on fenceline.subscription
  for each row when (old.lifecycle <> new.lifecycle or old.generation <> new.generation)
  execute function fenceline.note_subscription_times();

-- What was found in a version before it was cut into chunks (§5): a list of codes and counts. No content, so it outlives a purge.
alter table fenceline.resource_version add column findings jsonb;

alter table fenceline.entry_group add column recorded_at timestamptz not null default fenceline.now();

-- By transaction and then by position: a transaction that is still open holds back what came after it (receipts in records.sql).
create index receipt_transaction on fenceline.receipt (xid, receipt_id);

-- A key of 8,192 characters fits no index entry.
alter table fenceline.access_grant drop constraint access_grant_cover_hash_audience_id_reader_id_source_id_key_key;
create unique index access_grant_once on fenceline.access_grant
  (cover_hash, audience_id, reader_id, source_id, hashtextextended(key_prefix, 0), origin);
