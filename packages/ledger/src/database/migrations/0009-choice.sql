-- What a configuration takes of a source, and what it no longer names.

alter table fenceline.subscription
  add column excluded boolean not null default false;             -- closed because it is left out; a listing that takes it opens it again

-- What was not valid in its list: codes and messages with their URIs.
alter table fenceline.scan add column faults jsonb;

-- Since when no configuration names it, as a person confirmed; null: one does, or nobody was asked.
alter table fenceline.source add column retired_at timestamptz;
