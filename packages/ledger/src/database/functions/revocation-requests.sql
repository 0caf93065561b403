-- Revoking from any language that has a PostgreSQL driver (P1): the three functions beside the ledger's own API.
--
--   select * from fenceline.fenceline_revoke(request_id => 'HR-2041', subject => 'user:alice', reason => 'left',
--                                            prefix => 'catalog://plans/');
--
-- 1. Effective when the caller's transaction commits (P2), and no sooner. Until then the exclusive scope fences are held: discover,
--    issue, accept, confirm and grant of the same source and subject wait. Commit at once, and call nothing slow before.
-- 2. READ COMMITTED is needed; another isolation is refused.
-- 3. Idempotent by request_id: the same request again answers with the same revocation.
-- 4. Bad arguments raise an error with errcode and hint that names the argument, and leave no row.
-- 5. They run with the rights of their owner under a fixed search path (and a fixed reading of string constants: a session with
--    `standard_conforming_strings = off` would revoke another URI than was named), so the caller's role needs no right on any table: `grant
--    usage on schema` and `grant execute on function`, per function. Nobody else may execute them; lifting shows content
--    again, so grant it apart. Migrations keep such grants.

-- Revokes.
--   request_id    idempotency key
--   subject       `user:alice`, `group:sales`, `svc:rag`
--   reason        why, kept for ever
--   source        null: every source
--   uri, prefix   at most one; both null: everything. A URI that SQL cannot fold is refused (uri-keys.sql).
--   role          `reader`, `audience` or `both`
--   requested_by  null: the role of the connection
-- Result: the revocation, as `fenceline_revocation`.
create or replace function fenceline.fenceline_revoke(
  request_id text, subject text, reason text, source text default null, uri text default null, prefix text default null,
  role text default 'both', requested_by text default null
) returns fenceline.revocation_report
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_source int := fenceline.requested_source($4);
  v_scope record;
  v_key record;
  v_match record;
  v_asked fenceline.revocation;
  v_answer record;
begin
  perform fenceline.require_argument('request_id', $1, 512);
  perform fenceline.require_argument('subject', $2, 512);
  perform fenceline.require_argument('reason', $3, null);
  perform fenceline.require_argument('requested_by', coalesce($8, session_user::text), 512);
  if $7 is null or $7 not in ('reader', 'audience', 'both') then
    raise exception 'the role is %, not reader, audience or both', coalesce($7, 'null')
      using errcode = 'invalid_parameter_value', column = 'role',
        hint = 'A reader read content, an audience asks for it; both is the default.';
  end if;
  select * into v_scope from fenceline.scope_texts($5, $6);
  select * into v_key from fenceline.scope_range(v_scope.key_text);
  select * into v_match from fenceline.scope_range(v_scope.match_text);
  -- Before the fence, which is held until the caller commits. What is discovered meanwhile is counted by the batches.
  v_asked.source_id := v_source;
  v_asked.subject_id := (select s.subject_id from fenceline.subject s where s.name = $2);
  v_asked.role := $7::fenceline.revocation_role;
  v_asked.key_from := v_key.range_from;
  v_asked.key_to := v_key.range_to;
  v_asked.match_from := v_match.range_from;
  v_asked.match_to := v_match.range_to;
  select * into v_answer from fenceline.revoke(
    $1, v_source, $2, v_asked.role, v_scope.scope_text, $3, coalesce($8, session_user::text),
    v_asked.key_from, v_asked.key_to, v_asked.match_from, v_asked.match_to,
    array(select distinct fenceline.hash_prefix(coalesce(v_source, 0), t.text)
          from unnest(array[v_scope.key_text, v_scope.match_text]) t (text)),
    fenceline.covers_nothing_known(v_asked));
  if v_answer.outcome = 'request_id_reused' then
    raise exception 'the request % was made before with other contents', quote_literal($1)
      using errcode = 'unique_violation', column = 'request_id', hint = 'Use a new request_id for a new request.';
  end if;
  return fenceline.revocation_report_of(v_answer.id);
end $$;

-- Lifts a revocation; idempotent. From the commit on it denies nothing; what it closed is read again by running pools, batch by batch,
-- and shown when a new read of it was accepted.
create or replace function fenceline.fenceline_lift(revocation_id bigint) returns fenceline.revocation_report
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
#variable_conflict use_column
begin
  if fenceline.lift_revocation($1) = 'unknown' then
    raise exception 'there is no revocation %', $1 using errcode = 'no_data_found', column = 'revocation_id',
      hint = 'fenceline_revoke answers with the id; fenceline_revocation finds it by request_id.';
  end if;
  return fenceline.revocation_report_of($1);
end $$;

-- A revocation and what is left of it: ask again until it is complete. No row: there is none.
--   revocation_id, request_id  one of them
--   state                      EFFECTIVE | NOTHING_COVERED (effective as well; nothing that is known) | COMPLETE |
--                              COMPLETE_EXCEPT_EXPORTS | LIFTED
--   remaining_entries          entries not yet verified absent from their stores
--   stores                     per store: entries, remaining, and what it waits for (as `revocation_status`)
create or replace function fenceline.fenceline_revocation(revocation_id bigint default null, request_id text default null)
returns setof fenceline.revocation_report
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
#variable_conflict use_column
begin
  if ($1 is null) = ($2 is null) then
    raise exception 'either revocation_id or request_id is needed' using errcode = 'invalid_parameter_value',
      hint = 'Name one of the two.';
  end if;
  return query
    select a.* from fenceline.revocation v cross join lateral fenceline.revocation_report_of(v.revocation_id) a
    where v.revocation_id = $1 or v.request_id = $2;
end $$;

revoke execute on function fenceline.fenceline_revoke(text, text, text, text, text, text, text, text) from public;
revoke execute on function fenceline.fenceline_lift(bigint) from public;
revoke execute on function fenceline.fenceline_revocation(bigint, text) from public;

-- What all three answer with.
create or replace function fenceline.revocation_report_of(p_revocation bigint) returns fenceline.revocation_report
language sql stable as $$
  select s.revocation_id, s.request_id,
         case when s.nothing_covered and s.state = 'EFFECTIVE' then 'NOTHING_COVERED' else s.state end,
         s.nothing_covered, s.effective_at, s.completed_at, s.covered_resources, l.entries, l.remaining, s.exports,
         coalesce(s.stores, '[]')
  from fenceline.revocation_status(p_revocation, null) s
  cross join lateral (
    select coalesce(sum((j.store ->> 'entries')::bigint), 0)::bigint as entries,
           coalesce(sum((j.store ->> 'remaining')::bigint), 0)::bigint as remaining
    from json_array_elements(s.stores) j (store)) l
$$;

-- The id of a source by its name; null for every source.
create or replace function fenceline.requested_source(p_source text) returns int language plpgsql stable as $$
declare
  v_source int := (select s.source_id from fenceline.source s where s.name = p_source);
begin
  if p_source is not null and v_source is null then
    raise exception 'no source named % is registered', quote_literal(left(p_source, 200))
      using errcode = 'undefined_object', column = 'source', hint = 'Register it, correct the name, or leave it out (null) for every source.';
  end if;
  return v_source;
end $$;

-- As `input.ts` bounds the arguments of the API.
--   p_longest  in UTF-16 code units; null: whatever length
create or replace function fenceline.require_argument(p_name text, p_value text, p_longest int) returns void
language plpgsql immutable as $$
begin
  if coalesce(fenceline.trimmed(p_value), '') = '' then
    raise exception 'the % is empty', p_name using errcode = 'invalid_parameter_value', column = p_name,
      hint = 'A revocation needs a request_id, a subject and a reason.';
  end if;
  if fenceline.utf16_length(p_value) > p_longest then
    raise exception 'the % has more than % characters', p_name, p_longest
      using errcode = 'invalid_parameter_value', column = p_name, hint = 'Use a shorter one.';
  end if;
end $$;
