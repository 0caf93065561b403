-- Which template of its server stands for a resource that no list names by itself; null: it is listed.

alter table fenceline.scan_entry add column uri_template text;
alter table fenceline.subscription add column uri_template text;
-- Which templates are in use is asked whenever a source is connected to; most subscriptions are of none.
create index subscription_of_template on fenceline.subscription (scope_id, uri_template) where uri_template is not null;
