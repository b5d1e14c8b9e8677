"""Every fault that clusters make, made for real, and where it is tested.

In each: the account is charged once, every release has one noise (the values are those of an undisturbed run under the
same seed, or, with real noise, all that anybody ever saw agrees), no un-noised number lies on a disk or in a log
afterwards (`tests.faults.scan`), and the run ends with its values, or with one clear error and can be resumed.

==============================================  =======================================================================
fault                                           tested in
==============================================  =======================================================================
worker killed (SIGKILL) in mid-round            ``faults/test_workers.py``, ``engine/test_reproducible.py``
worker killed while users randomise             ``distributed/test_local_rounds.py``
worker hangs for a while, for ever *            ``faults/test_workers.py``
worker out of memory: nanny, setrlimit          ``faults/test_workers.py``; as a pod: ``tests/kubernetes``
worker's host cut off, healed *                 ``faults/test_hosts.py`` (network namespaces)
scheduler's host cut off, healed *              ``faults/test_hosts.py``
scheduler killed in mid-run                     ``faults/test_workers.py``
scheduler killed between two rounds, stopped    ``faults/test_replaced.py``
all workers replaced, none left, scaled to 0    ``faults/test_replaced.py``; as pods: ``tests/kubernetes``
workers or a scheduler that stay away *         ``faults/test_away.py``
any of these at random instants *               ``faults/test_lost_instants.py``
coordinator killed at random instants           ``distributed/test_crash.py``, ``distributed/test_job_kill.py``
two coordinators with one run id                ``faults/test_coordinators.py`` (PostgreSQL, object store),
                                                ``privacy/test_journal.py`` (file)
store answers 503, slowly, or cuts chunks       ``data/test_object_stores.py``
store away for 20 s, for good *                 ``faults/test_stores.py``
PostgreSQL restarted, gone at the charge        ``privacy/test_postgres.py``
PostgreSQL lost inside a transaction *          ``faults/test_databases.py``
a store at random instants *                    ``faults/test_instants.py``
disk full under ledger, journal, results *      ``faults/test_disks.py``, ``privacy/test_ledger.py``
clock jumps: scheduler, workers, coordinator    ``faults/test_clock.py`` (a library shifts the clock of single
                                                processes: a machine has only one, and it is not ours)
client and workers of different versions        ``distributed/test_versions.py``
client without, or with a wrong, certificate    ``distributed/test_tls.py``
==============================================  =======================================================================

Those with a star need root, or wait for time-outs of the cluster; they are marked ``faults``, and

    python -m pytest -m faults

runs them; what they come to is on the page ``deploy/FAULTS.md``. The others are part of the normal suite.
"""
