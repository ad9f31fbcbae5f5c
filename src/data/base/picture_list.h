// Which pictures there are, and their captions: from a folder, or from a list of them.
#pragma once

#include <string>
#include <vector>

#include "data/base/manifest.h"

namespace melete {

// Where a folder's captions come from.
enum class Captions {
  automatic,  // beside where there is one, else the folder's name
  beside,     // cat.txt beside cat.jpg; several lines are one caption
  folder,  // the name of the folder that a picture lies in, "red_cars" as "red cars"; none right at the top
};
Captions captions_named(const std::string& name);  // "auto", "text", "folder"

// Pictures as entries with path and text; what only recordings have is left 0. A folder is looked through
// with all folders below it; a list has one JSON object a line: {"path": "a/b.jpg", "text": "a cat"}, with
// paths from where the list is, and the caption under the key `caption_column`; or it is a table (.csv, .tsv)
// whose first row names its columns, "path" and that one among them. Sorted by path, or as listed. An Error
// when there is none.
std::vector<ManifestEntry> load_pictures(const std::string& folder_or_list, Captions captions,
                                         const std::string& caption_column = "text");

}  // namespace melete
