-- Scans that the ledger bounds, binds to a snapshot id and proves itself (S1 to S6, S8), and the tasks that take a proof.

alter table fenceline.scan
  add column templates boolean not null default false,            -- the list of templates belongs to it as well (S1)
  add column snapshot_negotiated boolean not null default false,  -- pages have to bind a snapshot id (S3)
  add column page_snapshot_digest bytea,                          -- of the id its first page bound
  add column snapshot_fault text,                                 -- a page bound none, or another one
  add column pages int not null default 0,
  add column listed bigint not null default 0,                    -- entries as sent, before those of one key were merged
  add column bytes bigint not null default 0,                     -- of their texts
  add column max_pages int,                                       -- S2; null: unbounded, as scans of older versions were
  add column max_entries bigint,
  add column max_bytes bigint,
  add column list_changed_until bigint,                           -- list_changed_number at its end
  add column agreed_with bigint,                                  -- the scan it was published with; itself: proven
  add column attempts int,                                        -- pairs that did not agree before it came out UNSETTLED (S4)
  add column measured_at timestamptz,                             -- of its publication (S5)
  add column staleness_ms bigint,
  add column next_review_at timestamptz,
  add column removal_held boolean,                                -- its publication held back what vanished (S8)
  add column absence_allowed boolean not null default false;      -- a completeness task was weighed and may go on (S6)

-- A scan under way goes on after the upgrade.
update fenceline.scan x
set pages = (select count(*) from fenceline.scan_page p where p.scan_id = x.scan_id), listed = x.entries
where x.ended_at is null;

alter table fenceline.scan_page
  add column list text not null default 'resources' constraint list_is_known check (list in ('resources', 'templates')),
  add column page_digest bytea,
  add column ends boolean;                                        -- no cursor followed; null: the caller did not tell
create index scan_page_cursor on fenceline.scan_page (scan_id, cursor_digest);

create table fenceline.scan_template (
  scan_id bigint not null,
  template_digest bytea not null,                                 -- SHA-256 of uri_template
  uri_template text not null,
  name text,
  title text,
  mime_type text,
  descriptor_digest bytea not null,
  primary key (scan_id, template_digest)
);

-- What a snapshot id stood for the first time it was seen complete, for ever: an id with another set is forged (S3).
create table fenceline.snapshot_id (
  scope_id int not null,
  id_digest bytea not null,
  set_digest bytea not null,
  scan_id bigint not null,
  known_since timestamptz not null default fenceline.now(),
  primary key (scope_id, id_digest)
);
insert into fenceline.snapshot_id (scope_id, id_digest, set_digest, scan_id, known_since)
select distinct on (scope_id, snapshot_id_digest) scope_id, snapshot_id_digest, set_digest, scan_id, ended_at
from fenceline.scan
where snapshot_id_digest is not null and set_digest is not null
order by scope_id, snapshot_id_digest, scan_id;

-- A publication and a completeness task may each have one open removal.
alter table fenceline.held_removal
  add column task text not null default 'catalogue' constraint task_is_known check (task in ('catalogue', 'completeness')),
  add column carried_out_scan_id bigint;
drop index fenceline.held_removal_open;
create unique index held_removal_open on fenceline.held_removal (scope_id, task) where ended_at is null;
