package admin

import (
	"embed"
	"mime"
	"net/http"
	"path"
)

// The page at / and its two files. It shows what /api/status says, needs
// nothing from elsewhere, and puts every value into the document as text.
//
//go:embed page
var page embed.FS

// servePage serves one file of the page. The file is read when the routes are
// made, so that a missing one shows at once.
func servePage(name string) http.HandlerFunc {
	content, err := page.ReadFile("page/" + name)
	if err != nil {
		panic("admin: " + err.Error()) // the files are compiled in
	}
	contentType := mime.TypeByExtension(path.Ext(name))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(content)
	}
}
