-- What operating the database needs: recognising a restored backup, and a digest key that is kept elsewhere.

-- `incarnation` rises with every backup that was recognised as restored. `witness_number` rises with every look a witness takes
-- (restore.sql): a database that is behind what its witness saw was restored.
-- The key of digests may be kept outside; then only its fingerprint is here.
alter table fenceline.identity
  add column incarnation int not null default 1,
  add column witness_number bigint not null default 0,
  add column digest_key_fingerprint bytea,
  alter column digest_key drop not null,
  add constraint digest_key_or_its_fingerprint check ((digest_key is null) = (digest_key_fingerprint is not null));

-- Of the last restore: what was not verified since is served as unverified (§9). Above every verified_at of its time.
alter table fenceline.policy_scope add column restored_at timestamptz;

-- A restore that was recognised: what told it, and how far the counters jumped.
create table fenceline.restore (
  incarnation int primary key,
  recognized_at timestamptz not null default fenceline.now(),
  evidence text not null constraint evidence_is_known check (evidence in ('position', 'entry', 'revocation', 'operator')),
  detail jsonb not null
);
