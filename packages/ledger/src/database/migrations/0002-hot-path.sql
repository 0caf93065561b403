-- What issue and accept cost: no index on a column that changes with every read, and no search through all revocations.

-- Finding what is due needs an index, and due_at moves with every issue, acceptance and notification: indexed, it made each of
-- those updates write all indexes of the row (a third of the cost of an acceptance). look_at is what the index is on: never later
-- than due_at, raised when a look finds that nothing is due there yet, and lowered by the trigger below wherever due_at falls
-- beneath it. An acceptance leaves it alone, so its update stays heap-only.
alter table fenceline.subscription add column look_at timestamptz;
update fenceline.subscription set look_at = due_at where due_at is not null;
alter table fenceline.subscription add constraint look_at_not_after_due check (due_at is null or (look_at is not null and look_at <= due_at));
drop index fenceline.subscription_due;
create index subscription_look on fenceline.subscription (scope_id, look_at) where look_at is not null;

create function fenceline.on_due_before_look() returns trigger language plpgsql volatile as $$
begin
  new.look_at := new.due_at;
  return new;
end $$;
create trigger subscription_due_at_insert before insert on fenceline.subscription
  for each row when (new.due_at is not null and (new.look_at is null or new.look_at > new.due_at))
  execute function fenceline.on_due_before_look();
create trigger subscription_due_at_update before update of due_at on fenceline.subscription
  for each row when (new.due_at is not null and (new.look_at is null or new.look_at > new.due_at))
  execute function fenceline.on_due_before_look();

-- The newest revocation or lift of a subject by hash of the scope's text, lifted ones included (F2): what the deny hashes of a
-- resource are joined with.
create table fenceline.revocation_epoch (
  hash bigint not null,
  subject_id bigint not null,
  policy_epoch bigint not null,
  primary key (hash, subject_id)
);
-- A range begins with its text; of a single URI it ends with it (uri-scope.ts).
insert into fenceline.revocation_epoch (hash, subject_id, policy_epoch)
select ('x' || encode(substr(sha256(convert_to(coalesce(v.source_id, 0) || E'\n' || t.text, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint,
  v.subject_id, max(v.policy_epoch)
from fenceline.revocation v
cross join lateral (values
  (case when v.key_to = v.key_from || E'\x01' then v.key_to else v.key_from end),
  (case when v.match_to = v.match_from || E'\x01' then v.match_to else v.match_from end)) t (text)
where v.role <> 'audience'
group by 1, 2;

create function fenceline.on_revocation_cover() returns trigger language plpgsql volatile as $$
begin
  perform fenceline.record_policy_epochs(
    array(select hash from changed where as_reader), array(select subject_id from changed where as_reader),
    array(select revocation_id from changed where as_reader));
  return null;
end $$;
create trigger revocation_cover_added after insert on fenceline.revocation_cover
  referencing new table as changed for each statement execute function fenceline.on_revocation_cover();
create trigger revocation_cover_removed after delete on fenceline.revocation_cover
  referencing old table as changed for each statement execute function fenceline.on_revocation_cover();

-- Asking what covers a resource looks for each of its forty deny hashes. What was found stands while the scope's policy epoch does,
-- which rises with every revocation and lift (F2).
alter table fenceline.subscription
  add column cleared_epoch bigint,                 -- policy epoch at which no standing revocation covered it
  add column covering_epoch bigint not null default 0; -- newest revocation or lift that covers it, found then

-- Of a resource under a reader only the newest version has a body, so its rows are written over by the next version's: what
-- stays in place touches no index, and leaves nothing to be vacuumed.
delete from fenceline.body b
where b.ordinal < (select max(n.ordinal) from fenceline.body n where n.subscription_id = b.subscription_id);
alter table fenceline.body drop constraint body_pkey;
alter table fenceline.body add constraint body_pkey primary key (subscription_id, position);
alter table fenceline.subscription
  add column parts_kept int not null default 0;    -- the positions of its body are below
update fenceline.subscription s
set parts_kept = b.parts
from (select subscription_id, max(position) + 1 as parts from fenceline.body group by subscription_id) b
where b.subscription_id = s.subscription_id;
