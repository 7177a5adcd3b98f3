"""What a plan counts the queries of models as."""

from darrm.plan.budget import counted
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload


def test_models_are_counted_as_so_many_plain_voters_as_a_person_reaches() -> None:
    models = Voters(5, PrivacyParams(1), overlap=2, models=True)
    work = Workload(models, 10, PrivacyParams("0.5", "1e-5"))
    assert counted(work).voters == Voters(5, PrivacyParams("inf"), overlap=2)
    assert counted(work, one_by_one=True).voters == Voters(5, PrivacyParams("inf"), overlap=1)
