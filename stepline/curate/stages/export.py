"""The last stage: the records of the stage before it become a dataset that can be published."""

from stepline.curate.export import Contents, export_dataset
from stepline.curate.places import Place
from stepline.curate.stage import Gathered
from stepline.curate.stages.dataset import FEATURES, last_folder, last_records, read_left_out
from stepline.features import FeatureStore


def export(gathered: Gathered) -> None:
    """Write the dataset into the stage's folder; `stepline.curate.run` publishes it in OUT/dataset."""
    from stepline.curate.stages import STAGES

    recipe = gathered.recipe
    features = gathered.folders["gather"] / FEATURES
    tree = export_dataset(
        Contents(
            records=lambda: last_records(gathered),
            left_out=read_left_out(last_folder(gathered)),
            items={item.id: item for item in gathered.items},
            stages=recipe.stages,
            settings={name: STAGES[name].settings(recipe) for name in recipe.stages},
            features=FeatureStore(features) if any(features.glob("shard-*.parquet")) else None,
            media={item.id: Place(item.video, recipe.places) for item in gathered.items if item.video is not None},
        ),
        gathered.folder,
        recipe.export,
    )
    gathered.say(f"{tree['videos']} videos with {tree['steps']} steps in the dataset, {tree['left_out']} left out")
