-- The relation behind the table `objects`.
CREATE TABLE public.objects (path text COLLATE "C" PRIMARY KEY, meta text);
INSERT INTO public.objects VALUES ('main/a.txt', 'hello from Postgres');
