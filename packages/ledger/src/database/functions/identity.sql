-- What makes the ledger's digests its own: kept in its identity, or outside of it.

-- Takes the key out of the database, or another in place of one that nothing was digested with yet; its fingerprint stays.
--   p_fingerprint  of the key that is used from now on
--   p_is_kept      whether it is the key that is kept
--   → 'moved' | 'outside' (a key was moved out before: compare fingerprints) | 'in_use' (digests under the kept key exist)
create or replace function fenceline.move_digest_key_out(p_fingerprint bytea, p_is_kept boolean) returns text
language plpgsql volatile as $$
begin
  perform 1 from fenceline.identity for update;
  if exists (select 1 from fenceline.identity where digest_key is null) then return 'outside'; end if;
  if not p_is_kept and (
    exists (select 1 from fenceline.entry) or exists (select 1 from fenceline.purge_receipt)) then
    return 'in_use';
  end if;
  update fenceline.identity set digest_key = null, digest_key_fingerprint = p_fingerprint;
  return 'moved';
end $$;
