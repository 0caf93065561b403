-- Entries derived from versions or from other entries (L1), what is kept of purged ones (L4), what an export held (L6), and
-- indexes that left (L3).

-- An index of derived entries alone takes no versions: no outbox row is raised for it, and it serves from the start.
alter table fenceline.index
  add column takes_versions boolean not null default true,
  add column retired_at timestamptz;               -- left the configuration: takes nothing, shows nothing, is purged

alter table fenceline.entry_group
  alter column resource_id drop not null,          -- null: derived from several (L5 shares inside one resource only)
  alter column part_id drop not null,
  add column kind text not null default 'chunk' constraint kind_is_known check
    (kind in ('chunk', 'vector', 'document', 'embedding', 'summary', 'answer')),
  add column ingredients smallint not null default 1,  -- of its roots, numbered from 0
  add column audience_id bigint;                   -- made for this subject alone: nobody else sees it (P3)
create index entry_group_audience on fenceline.entry_group (audience_id) where audience_id is not null;

-- Of a group that no confirm of an index version replaces: it ends with the version itself.
alter table fenceline.group_root add column derived boolean not null default false;
create index group_root_derived on fenceline.group_root (subscription_id) where derived;

-- Something was derived from its versions: the next acceptance has to end it. Hot paths ask nothing else.
alter table fenceline.subscription add column derived boolean not null default false;

-- What a derived group was made of, as it was said: one row per parent. Its closure is in group_root.
create table fenceline.group_parent (
  group_id bigint not null,
  ingredient smallint not null,                    -- parents of one number are alternatives (L1)
  position smallint not null,
  parent_group bigint,                             -- of an entry; else the parent is a version
  parent_entry bigint,
  subscription_id bigint,
  ordinal bigint,
  part_id bigint,                                  -- null: every part of the version
  primary key (group_id, ingredient, position),
  constraint parent_is_an_entry_or_a_version check
    ((parent_group is null) = (parent_entry is null) and (parent_entry is null) = (subscription_id is not null)
     and (subscription_id is null) = (ordinal is null))
);
create index group_parent_group on fenceline.group_parent (parent_group) where parent_group is not null;
create index group_parent_entry on fenceline.group_parent (parent_entry) where parent_entry is not null;

-- Numbers of entries whose rows a purge deleted, in runs: an id is never reused, so what it named can still be said (L4).
create table fenceline.purged_entry (
  first_number bigint primary key,
  last_number bigint not null,
  group_id bigint not null
);
create index purged_entry_group on fenceline.purged_entry (group_id);

create table fenceline.purge_receipt_group (
  group_id bigint not null,
  purge_receipt_id bigint not null,
  primary key (group_id, purge_receipt_id)
);
create index purge_receipt_group_receipt on fenceline.purge_receipt_group (purge_receipt_id);

-- An export is of a version or of an entry. What it held is in export_root; of one made before this table was there only the
-- version is known.
alter table fenceline.export
  alter column subscription_id drop not null,
  alter column ordinal drop not null,
  add column entry_number bigint,
  add column group_id bigint,
  add column roots_known boolean not null default false,
  add constraint export_is_of_an_entry_or_a_version check ((entry_number is null) = (subscription_id is not null));
create index export_group on fenceline.export (group_id) where group_id is not null;

create table fenceline.export_root (
  export_id bigint not null,
  subscription_id bigint not null,
  part_id bigint not null,
  primary key (export_id, subscription_id, part_id)
);
create index export_root_subscription on fenceline.export_root (subscription_id);
create index export_root_part on fenceline.export_root (part_id);
